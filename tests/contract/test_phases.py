"""Several algorithms run one after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runs import make_plan, run_rounds

from motet.algorithms import atc, fedavg, isolated
from motet.algorithms.fedavg import FedAvg
from motet.algorithms.phases import Phase, Phases
from motet.core.errors import ConfigError
from motet.core.layers import Layers
from motet.core.program import Algorithm
from motet.core.work import Executor
from motet.experiment.build.federation import Federation
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.run_loop import execute_plan
from motet.experiment.loop.run_result import RunResult
from motet.experiment.recipe.run_config import CheckpointConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.wire import serialize

SOLVER = Solver(lr=0.01, batch=8)


def make_phases(*phases: tuple[Algorithm, float]) -> Phases:
    return Phases(tuple(Phase(algorithm, share) for algorithm, share in phases))


def make_atc() -> Phases:
    solver = Solver(lr=0.01, batch=8, steps=2)
    return atc(solver, assign=0.5, assign_steps=2, assign_batch=8, clusters=2, neighbors=2, instances=6, tokens=8)


def test_each_phase_has_its_share_of_the_rounds_and_the_last_one_has_the_rest() -> None:
    phases = make_phases((fedavg(), 0.5), (isolated(), 0.25), (fedavg(), 0.25))
    assert [phases.find_phase(i, 9) for i in range(9)] == [(0, 0, 4)] * 4 + [(1, 4, 2)] * 2 + [(2, 6, 3)] * 3
    assert atc(assign=2 / 3).find_phase(199, 300)[0] == 0
    assert atc(assign=2 / 3).find_phase(200, 300) == (1, 200, 100)


def test_fedavg_in_two_phases_is_fedavg(federation: Federation) -> None:
    expected = run_rounds(federation, fedavg(SOLVER), 4)
    running = run_rounds(federation, make_phases((fedavg(SOLVER), 0.5), (fedavg(SOLVER), 0.5)), 4)
    assert torch.equal(running.state.inner.params.flat, expected.state.params.flat)


def test_local_layers_of_one_phase_are_initial_layers_of_the_next(federation: Federation) -> None:
    first, second = (FedAvg(SOLVER, shared=~Layers.parse("head"), name=name) for name in ("first", "second"))
    client = federation.clients[0]
    local = run_rounds(federation, first, 1).storage.client_states.get("first", client)
    initial = run_rounds(federation, make_phases((first, 0.5), (second, 0.5)), 2).storage.client_states.get(
        "beginning", client
    )
    assert torch.equal(initial.restrict(local.layout).flat, local.flat)
    assert not torch.equal(federation.model.initial_params.restrict(local.layout).flat, local.flat)


def test_after_a_phase_without_shared_layers_the_server_has_the_initial_model(federation: Federation) -> None:
    running = run_rounds(federation, make_phases((isolated(SOLVER), 0.5), (fedavg(SOLVER), 0.5)), 2)
    assert running.state.inner.params.layout == federation.model.layout


def test_the_share_of_a_phase_must_be_valid() -> None:
    with pytest.raises(ConfigError, match="expected 0 to 1"):
        Phase(fedavg(), 1.5)


class FailingExecutor(Executor):
    """Raises KeyboardInterrupt after a number of jobs, as if the process had been killed."""

    def __init__(self, jobs: int) -> None:
        self.executor, self.jobs_left = SerialExecutor(torch.device("cpu")), jobs

    @property
    def examples_processed(self) -> int:
        return self.executor.examples_processed

    def submit(self, key: Any, job: Any) -> None:
        self.executor.submit(key, job)

    def wait_completed(self) -> Any:
        self.jobs_left -= 1
        if self.jobs_left < 0:
            raise KeyboardInterrupt
        return self.executor.wait_completed()

    def run(self, job: Any) -> Any:
        return self.executor.run(job)


@pytest.fixture(scope="module")
def plan(backbone_federation: Federation) -> RunPlan:
    return make_plan(backbone_federation, make_atc(), 4, checkpoint=CheckpointConfig(0), digest="same")


@pytest.fixture(scope="module")
def uninterrupted(plan: RunPlan, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    folder = tmp_path_factory.mktemp("uninterrupted")
    return execute_plan(plan, SerialExecutor(torch.device("cpu")), folder=folder)


# The jobs fall in: Assign, its evaluation, the encoding of inputs, the evaluation of Contrast, and Contrast.
@pytest.mark.parametrize("jobs", [3, 6, 18, 25, 30])
def test_a_run_interrupted_in_any_phase_resumes_with_the_same_result(
    jobs: int, plan: RunPlan, uninterrupted: RunResult, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        execute_plan(plan, FailingExecutor(jobs), folder=tmp_path)
    resumed = execute_plan(plan, SerialExecutor(torch.device("cpu")), folder=tmp_path, resume=True)
    assert serialize(resumed.state) == serialize(uninterrupted.state)
    assert resumed.client_scores == uninterrupted.client_scores
    records = [
        [{key: row[key] for key in ("round", "who", "name", "value")} for row in result.metrics.rows]
        for result in (uninterrupted, resumed)
    ]
    assert records[0] == records[1]


def test_after_a_run_the_deployed_model_has_the_clients_local_layers(backbone_federation: Federation) -> None:
    plan = make_plan(backbone_federation, make_atc(), 2)
    result = execute_plan(plan, SerialExecutor(torch.device("cpu")))
    client = backbone_federation.clients[0]
    local = result.client_states.get("contrast", client)
    assert torch.equal(result.model_for(client).restrict(local.layout).flat, local.flat)
