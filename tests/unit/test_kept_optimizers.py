"""solver.keep_state: clients keep their optimizer between rounds, with one learning-rate schedule over all rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.entries import OPTIONS
from tests.runs import run_rounds

from motet.algorithms import ALGORITHMS, fedavg, isolated
from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.work import Executor
from motet.experiment.build.federation import Federation
from motet.experiment.build.optimizer_keeping import find_rounds
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver

CPU = torch.device("cpu")
KEPT = Solver(optimizer="adamw", lr=0.01, batch=8, weight_decay=0.01, warmup=0.1, shuffle=False, keep_state=True)
REFUSING = ("scaffold", "fednova", "qfedavg", "per_fedavg", "pfedme", "flora")


def train_one_client(federation: Federation, solver: Solver, rounds: int, executor: Executor | None = None) -> Params:
    """Train one client alone, so that its rounds are one training if its optimizer is kept."""
    running = run_rounds(federation, isolated(solver), rounds, executor=executor)
    model = running.model_for(federation.clients[0])
    assert isinstance(model, Params)
    return model


@pytest.mark.parametrize("schedule", ["linear", "constant"])
def test_three_rounds_with_a_kept_optimizer_are_one_training(schedule: Any, federation: Federation) -> None:
    solver = replace(KEPT, schedule=schedule)
    whole = train_one_client(federation, replace(solver, epochs=3, keep_state=False), rounds=1)
    kept = train_one_client(federation, solver, rounds=3)
    reset = train_one_client(federation, replace(solver, keep_state=False), rounds=3)
    assert (kept - whole).norm() < 1e-4 * whole.norm()
    assert (reset - whole).norm() > 100 * (kept - whole).norm()


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_one_schedule_spans_all_rounds_without_a_kept_optimizer(schedule: Any, federation: Federation) -> None:
    """SGD has no state, so that the rounds of one client are one training if they share a schedule."""
    solver = Solver(optimizer="sgd", lr=0.1, batch=8, warmup=0.1, shuffle=False, schedule=schedule)
    whole = train_one_client(federation, replace(solver, epochs=3), rounds=1)
    spanning = train_one_client(federation, replace(solver, schedule_span="run"), rounds=3)
    restarting = train_one_client(federation, solver, rounds=3)
    assert (spanning - whole).norm() < 1e-4 * whole.norm()
    assert (restarting - whole).norm() > 100 * (spanning - whole).norm()
    with pytest.raises(
        ConfigError, match=r"schedule_span is run, but scaffold computes with the learning rates of one"
    ):
        ALGORITHMS["scaffold"](solver=replace(solver, schedule_span="run"))


def test_packed_clients_keep_the_same_optimizers(federation: Federation) -> None:
    """Compare what the clients keep; models with Adam differ more, because it amplifies rounding errors."""
    solver = Solver(optimizer="sgd", momentum=0.9, lr=0.1, batch=8, keep_state=True)
    executors = (SerialExecutor(CPU), PackedExecutor(CPU, use_bf16=False))
    runs = [run_rounds(federation, fedavg(solver), 2, executor=executor) for executor in executors]
    for client in federation.clients:
        serial, packed = (run.storage.client_states.get("optimizer.fedavg.train.1", client) for run in runs)
        assert serial.steps == packed.steps == 2 * solver.num_steps(federation.participant(client).size)
        (first,), (second,) = serial.moments, packed.moments
        assert first.norm() > 0 and (first - second).norm() < 1e-3 * first.norm()


@pytest.mark.parametrize("name", ["fedavg", "ditto", "fedbn", "fedrep", "moon", "feddyn", "percfl", "spfl_like"])
def test_every_algorithm_keeps_the_optimizers_of_its_trainings(name: str, federation: Federation) -> None:
    algorithm = ALGORITHMS[name](solver=replace(KEPT, steps=1), **OPTIONS.get(name, {}))
    states = run_rounds(federation, algorithm, 1).storage.client_states
    keys = {key[0] for key in states.values if key[0].startswith("optimizer.")}
    assert len(keys) == (2 if name in ("ditto", "fedrep") else 1), "one optimizer for each training of a round"


@pytest.mark.parametrize("name", REFUSING)
def test_an_algorithm_that_cannot_keep_an_optimizer_says_why(name: str) -> None:
    solver = Solver(optimizer="sgd", keep_state=True)
    with pytest.raises(ConfigError, match=rf"solver.keep_state is true, but {name} .*set solver.keep_state=false"):
        ALGORITHMS[name](solver=solver)


def test_the_schedule_of_a_phase_spans_its_rounds() -> None:
    algorithm = ALGORITHMS["atc"](assign=0.5, second_stage="fedavg")
    assert find_rounds(algorithm, "assign", 24) == range(12)
    assert find_rounds(algorithm, "fedavg", 24) == range(12, 24)
    assert find_rounds(fedavg(), "fedavg", 24) == range(24)
