"""Rounds of a run: cohorts, traffic, notes, failures, and continuing from earlier progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from tests.runs import make_plan, start_run

from motet.algorithms import fedavg, isolated
from motet.core.errors import RunError
from motet.core.program import Algorithm, Round
from motet.core.script import Note, Script
from motet.experiment.build.federation import Federation
from motet.experiment.loop.round_engine import EngineHooks, RoundEngine
from motet.experiment.recipe.run_config import CohortConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.transport.client_state import ClientStates
from motet.wire import serialize

SOLVER = Solver(lr=0.01, batch=8)


@dataclass(frozen=True)
class Observer(Algorithm):
    """An algorithm that trains nothing: it records its rounds, and writes a note in each."""

    rounds: list[Round] = field(default_factory=list)
    name: str = "observer"
    error: Exception | None = None

    def init(self, start: Any) -> int:
        return 0

    def round(self, state: int, rnd: Round) -> Script[int]:
        self.rounds.append(rnd)
        yield Note(text=f"round {rnd.index}")
        if self.error is not None:
            raise self.error
        return state + 1

    def view(self, state: int, client: str) -> Any:
        return None

    def assemble(self, ctx: Any, view: Any, memory: Any) -> Any:
        return ctx.model.initial_params


def make_engine(federation: Federation, algorithm: Any, rounds: int = 3, **plan: Any) -> RoundEngine:
    executor = SerialExecutor(torch.device("cpu"))
    return RoundEngine(make_plan(federation, algorithm, rounds, **plan), executor, ClientStates())


def test_a_round_has_its_number_a_sampled_cohort_and_a_seed_of_its_own(federation: Federation) -> None:
    observer = Observer()
    engine = make_engine(federation, observer, cohort=CohortConfig(2))
    engine.run_round()
    engine.run_round()
    assert [rnd.index for rnd in observer.rounds] == [0, 1]
    assert [rnd.rounds for rnd in observer.rounds] == [3, 3]
    assert all(len(rnd.cohort) == 2 for rnd in observer.rounds)
    assert observer.rounds[0].seed != observer.rounds[1].seed
    assert (engine.progress.rounds, engine.progress.state) == (2, 2)


def test_a_cohort_can_be_given(federation: Federation) -> None:
    observer = Observer()
    make_engine(federation, observer).run_round(["client-2"])
    assert observer.rounds[0].cohort == ("client-2",)


def test_notes_of_an_algorithm_reach_the_hook(federation: Federation) -> None:
    notes: list[Note] = []
    plan = make_plan(federation, Observer(), 1)
    executor = SerialExecutor(torch.device("cpu"))
    RoundEngine(plan, executor, ClientStates(), hooks=EngineHooks(on_note=notes.append)).run_round()
    assert [note.text for note in notes] == ["round 0"]


def test_a_round_that_fails_leaves_the_progress_as_it_was(federation: Federation) -> None:
    engine = make_engine(federation, Observer(error=RunError("no luck")))
    before = engine.progress
    with pytest.raises(RunError, match="no luck"):
        engine.run_round()
    assert engine.progress is before


def test_a_run_is_finished_after_its_last_round(federation: Federation) -> None:
    engine = make_engine(federation, Observer(), rounds=1)
    assert not engine.is_finished
    engine.run_round()
    assert engine.is_finished


def test_progress_of_another_engine_can_be_continued(federation: Federation) -> None:
    first, second = (make_engine(federation, fedavg(SOLVER)) for _ in range(2))
    for _ in range(2):
        first.run_round()
    second.run_round()
    third = make_engine(federation, fedavg(SOLVER))
    third.restore(second.progress)
    third.run_round()
    assert serialize(third.progress) == serialize(first.progress)


def test_evaluation_does_not_count_as_traffic_of_the_algorithm(federation: Federation) -> None:
    run = start_run(federation, isolated(SOLVER))
    run.engine.run_round()
    before = serialize(run.engine.mailbox.traffic)
    assert run.evaluator.evaluate_clients().scores
    assert serialize(run.engine.mailbox.traffic) == before


def test_examples_per_second_counts_trained_examples(federation: Federation) -> None:
    engine = make_engine(federation, fedavg(SOLVER))
    assert engine.examples_per_second == 0
    engine.run_round()
    assert engine.trained_examples == sum(federation.partition.train.sizes)
    assert engine.examples_per_second > 0
