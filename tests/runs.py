"""Short ways to plan and start a run in tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from motet.codecs.chain import Channel
from motet.core.program import Algorithm, Round
from motet.core.script import ClientId, Note
from motet.core.work import Executor
from motet.experiment.build.run_components import RunComponents
from motet.experiment.build.run_plan import AnyFederation, RunPlan
from motet.experiment.loop.round_engine import ConnectClients
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.executors.serial_executor import SerialExecutor
from motet.report.run_callback import RunCallback
from motet.transport.in_process import InProcessTransport
from motet.transport.mailbox import Mailbox


def make_plan(
    federation: AnyFederation,
    algorithm: Algorithm,
    rounds: int = 1,
    *,
    channel: Channel = Channel(),
    secure: Any = None,
    privacy: Any = None,
    **options: Any,
) -> RunPlan:
    components = RunComponents(algorithm=algorithm, channel=channel, secure=secure, privacy=privacy)
    return RunPlan(federation=federation, components=components, rounds=rounds, **options)


def start_run(
    federation: AnyFederation,
    algorithm: Algorithm,
    rounds: int = 2,
    *,
    executor: Executor | None = None,
    folder: Path | None = None,
    callback: RunCallback | None = None,
    connect: ConnectClients = InProcessTransport,
    is_remote: bool = False,
    **plan: Any,
) -> FederatedRun:
    """Start a run on the CPU; no round has run yet."""
    return FederatedRun(
        make_plan(federation, algorithm, rounds, **plan),
        executor or SerialExecutor(torch.device("cpu")),
        folder=folder,
        callback=callback,
        connect=connect,
        is_remote=is_remote,
    )


def run_rounds(federation: AnyFederation, algorithm: Algorithm, rounds: int = 2, **options: Any) -> FederatedRun:
    """Run rounds of an algorithm with all clients, without evaluation."""
    run = start_run(federation, algorithm, rounds, **options)
    for _ in range(rounds):
        advance(run)
    return run


def make_round(
    federation: AnyFederation, index: int = 0, rounds: int = 2, cohort: Iterable[ClientId] | None = None
) -> Round:
    """Make a round for tests that run an algorithm's script themselves."""
    return Round(
        index=index,
        rounds=rounds,
        cohort=tuple(federation.clients if cohort is None else cohort),
        seed=federation.seed.derive("round", index),
        server=federation.server_context(index),
    )


def advance(
    run: FederatedRun,
    index: int | None = None,
    *,
    cohort: Iterable[ClientId] | None = None,
    mailbox: Mailbox | None = None,
    notes: list[Note] | None = None,
) -> FederatedRun:
    """Run the next round, by default with all clients. `mailbox` replaces the run's own; `notes` collects the notes."""
    engine = run.engine
    assert index is None or index == run.rounds
    own_mailbox, own_hooks = engine.mailbox, engine.hooks
    engine.mailbox = mailbox or own_mailbox
    if notes is not None:
        engine.hooks = replace(engine.hooks, on_note=notes.append)
    try:
        engine.run_round(tuple(run.plan.federation.clients if cohort is None else cohort))
    finally:
        engine.mailbox, engine.hooks = own_mailbox, own_hooks
    return run


def run_round(run: FederatedRun, index: int | None = None, **options: Any) -> Any:
    """Run the next round and return the new server state. `run.state` stays as it is."""
    progress = run.engine.progress
    try:
        return advance(run, index, **options).state
    finally:
        run.engine.progress = progress
