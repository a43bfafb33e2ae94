"""Programs one after another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runs import make_plan

from motet.algorithms import atc, fedavg, isolated
from motet.algorithms.fedavg import FedAvg
from motet.algorithms.phases import Phase, Phases
from motet.core.errors import ConfigError
from motet.core.layers import Layers
from motet.core.program import Algorithm
from motet.experiment.build.federation import Federation
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.run_loop import FederatedRun, RunResult, execute_plan
from motet.experiment.recipe.run_config import CheckpointConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.report.progress import SilentProgress
from motet.wire import serialize

SOLVER = Solver(lr=0.01, batch=8)
RunRounds = Callable[..., FederatedRun]


def phases(*parts: tuple[Algorithm, float]) -> Phases:
    return Phases(tuple(Phase(*part) for part in parts))


def test_each_phase_has_its_share_of_the_rounds_and_the_last_what_is_left() -> None:
    three = phases((fedavg(), 0.5), (isolated(), 0.25), (fedavg(), 0.25))
    assert [three.phase_at(i, 9) for i in range(9)] == [(0, 0, 4)] * 4 + [(1, 4, 2)] * 2 + [(2, 6, 3)] * 3
    assert atc(assign=2 / 3).phase_at(199, 300)[0] == 0
    assert atc(assign=2 / 3).phase_at(200, 300) == (1, 200, 100)


def test_fedavg_after_fedavg_is_fedavg(federation: Federation, rounds: RunRounds) -> None:
    plain = rounds(federation, fedavg(SOLVER), 4)
    parted = rounds(federation, phases((fedavg(SOLVER), 0.5), (fedavg(SOLVER), 0.5)), 4)
    assert torch.equal(parted.state.inner.params.flat, plain.state.params.flat)


def test_what_a_client_kept_to_itself_goes_with_it_into_the_next_phase(
    federation: Federation, rounds: RunRounds
) -> None:
    body = FedAvg(SOLVER, shared=~Layers.parse("head"), name="body")
    running = rounds(
        federation, phases((body, 0.5), (FedAvg(SOLVER, shared=~Layers.parse("head"), name="more"), 0.5)), 2
    )
    client = federation.clients[0]
    one = rounds(federation, body, 1)
    begun = running.memories.get("beginning", client)
    kept = one.memories.get("body", client)
    assert torch.equal(begun.restrict(kept.layout).flat, kept.flat)
    assert not torch.equal(federation.model.initial_params.restrict(kept.layout).flat, kept.flat)


def test_a_phase_of_which_the_server_knows_nothing_is_followed_from_the_first_model(
    federation: Federation, rounds: RunRounds
) -> None:
    running = rounds(federation, phases((isolated(SOLVER), 0.5), (fedavg(SOLVER), 0.5)), 2)
    assert running.state.inner.params.layout == federation.model.layout


def test_a_share_is_a_share() -> None:
    with pytest.raises(ConfigError, match="from 0 to 1"):
        Phase(fedavg(), 1.5)


class Stumbles:
    """A executor that gives up after so many jobs, as a process does that is killed."""

    capacity = 1

    def __init__(self, jobs: int) -> None:
        self.executor, self.left = SerialExecutor(torch.device("cpu")), jobs

    @property
    def examples_processed(self) -> int:
        return self.executor.examples_processed

    def submit(self, key: Any, job: Any) -> None:
        self.executor.submit(key, job)

    def wait_completed(self) -> Any:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return self.executor.wait_completed()

    def run(self, job: Any) -> Any:
        return self.executor.run(job)

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def in_phases(backbone_federation: Federation) -> RunPlan:
    algorithm = atc(Solver(lr=0.01, batch=8, steps=2), 0.5, 2, 8, clusters=2, neighbours=2, instances=6, tokens=8)
    return make_plan(backbone_federation, algorithm, 4, checkpoint=CheckpointConfig(0), digest="same")


@pytest.fixture(scope="module")
def whole(in_phases: RunPlan, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """Of a run that was never broken off."""
    return execute_plan(in_phases, SerialExecutor(torch.device("cpu")), folder=tmp_path_factory.mktemp("whole"))[0]


# In the first phase, while it is judged, while states are shown, while a round of contrast is judged, while contrasting.
@pytest.mark.parametrize("jobs", [3, 6, 18, 25, 30])
def test_a_run_that_breaks_off_in_any_phase_goes_on_as_if_it_had_not(
    jobs: int, in_phases: RunPlan, whole: RunResult, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        execute_plan(in_phases, Stumbles(jobs), folder=tmp_path)
    again, _ = execute_plan(in_phases, SerialExecutor(torch.device("cpu")), folder=tmp_path, resume=True)
    assert serialize(again.state) == serialize(whole.state)
    assert again.clients == whole.clients
    said = [
        [{k: r[k] for k in ("round", "who", "name", "value")} for r in result.record.rows] for result in (whole, again)
    ]
    assert said[0] == said[1]


def test_the_contexts_of_a_finished_run_remember_what_clients_do(backbone_federation: Federation) -> None:
    solver = Solver(lr=0.01, batch=8, steps=2)
    algorithm = atc(solver, 0.5, 2, 8, clusters=2, neighbours=2, instances=6, tokens=8)
    plan = make_plan(backbone_federation, algorithm, 2)
    _, running = execute_plan(plan, SerialExecutor(torch.device("cpu")), callback=SilentProgress())
    client = backbone_federation.clients[0]
    deployed = running.model_params(client)
    kept = running.memories.get("contrast", client).params
    assert torch.equal(deployed.restrict(kept.layout).flat, kept.flat)
