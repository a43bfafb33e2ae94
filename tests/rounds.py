"""Run rounds of an algorithm in tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from motet.core.program import Algorithm, Round
from motet.core.script import ClientId, Note, run_script
from motet.core.work import Executor
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.executors.serial_executor import SerialExecutor
from motet.report.progress import SilentProgress
from motet.transport.mailbox import Mailbox
from tests.runs import make_plan


def start_run(
    federation: Federation, algorithm: Algorithm, rounds: int = 2, executor: Executor | None = None, **plan: Any
) -> FederatedRun:
    """Return a run that has not played any round yet."""
    executor = executor or SerialExecutor(torch.device("cpu"))
    return FederatedRun(make_plan(federation, algorithm, rounds, **plan), executor, None, SilentProgress())


def make_round(
    federation: Federation, index: int = 0, rounds: int = 2, cohort: Iterable[ClientId] | None = None
) -> Round:
    return Round(
        index=index,
        rounds=rounds,
        cohort=tuple(federation.clients if cohort is None else cohort),
        seed=federation.seed.derive("round", index),
        server=federation.server_context(index),
    )


def run_round(
    running: FederatedRun,
    index: int = 0,
    *,
    cohort: Iterable[ClientId] | None = None,
    mailbox: Mailbox | None = None,
    notes: list[Note] | None = None,
) -> Any:
    """Run one round and return the new server state. `running.state` is left as it is."""
    plan = running.plan
    mailbox = mailbox or running.mailbox
    mailbox.round = index
    script = plan.algorithm.round(running.state, make_round(plan.federation, index, plan.rounds, cohort))
    return run_script(script, mailbox.run_exchange, running.executor.run, [].append if notes is None else notes.append)


def advance(running: FederatedRun, index: int = 0, **options: Any) -> FederatedRun:
    """Run one round and store its result in `running`."""
    running.state = run_round(running, index, **options)
    running.memories.commit_round()
    running.done = index + 1
    return running


def run_rounds(federation: Federation, algorithm: Algorithm, rounds: int = 2, **plan: Any) -> FederatedRun:
    """Run an algorithm for some rounds, with its secure sum and its noise, and without evaluation."""
    running = start_run(federation, algorithm, rounds, **plan)
    for index in range(rounds):
        rnd = make_round(federation, index, rounds)
        running.mailbox.round = index
        running.state = running._play(running._noisy(algorithm.round(running.state, rnd), rnd.seed))
        running.memories.commit_round()
        running.done = index + 1
    return running
