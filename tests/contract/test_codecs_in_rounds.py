"""Codecs under way: what they save, what they leave of a training, and that nothing of it is lost with a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runs import make_plan

from motet.algorithms import fedavg, fedsplit
from motet.codecs import CODECS, Channel, CodecChain, int8, top_k
from motet.core.rng import Seed
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun, execute_plan
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.report.progress import SilentProgress
from motet.wire import serialize

SOLVER = Solver(optimizer="adamw", lr=0.01, batch=8)
SPARSE = Channel(CodecChain((top_k(0.1), int8())), CodecChain((int8(),)), Seed(5))
RunRounds = Callable[..., FederatedRun]


@pytest.mark.parametrize("name", CODECS)
def test_traffic_is_what_the_codec_says(name: str, federation: Federation, rounds: RunRounds) -> None:
    chain = CodecChain((CODECS[name](),))
    traffic = rounds(federation, fedavg(SOLVER), 1, channel=Channel(up=chain)).mailbox.traffic
    assert traffic.payload_up == len(federation.clients) * chain.size(federation.model.layout)
    assert traffic.payload_down == len(federation.clients) * 4 * federation.model.layout.size


def test_the_same_seed_gives_the_same_bits_through_random_rounding(federation: Federation, rounds: RunRounds) -> None:
    first, second = (rounds(federation, fedavg(SOLVER), channel=SPARSE) for _ in range(2))
    other = rounds(federation, fedavg(SOLVER), channel=Channel(SPARSE.up, SPARSE.down, Seed(6)))
    assert serialize(first.state) == serialize(second.state)
    assert serialize(first.state) != serialize(other.state)


def test_what_is_owed_is_remembered_by_each_client_and_paid_later(federation: Federation, rounds: RunRounds) -> None:
    running = rounds(federation, fedavg(SOLVER), 2, channel=SPARSE)
    for client in federation.clients:
        (owed,) = running.memories.get("owed.fedavg.train", client)
        assert owed.layout == federation.model.layout
        assert 0 < float((owed.flat == 0).float().mean()) < 0.5
    forgetful = Channel(CodecChain((top_k(0.1, feedback=False), int8())), SPARSE.down, Seed(5))
    assert (
        rounds(federation, fedavg(SOLVER), 1, channel=forgetful).memories.get("owed.fedavg.train", "client-0") is None
    )


def test_a_run_that_stopped_goes_on_with_what_is_owed(federation: Federation, tmp_path: Path) -> None:
    def played(count: int, folder: Path, resume: bool = False) -> Any:
        folder.mkdir(exist_ok=True)
        plan = make_plan(federation, fedavg(SOLVER), count, channel=SPARSE)
        return execute_plan(plan, SerialExecutor(torch.device("cpu")), folder=folder, resume=resume)[1]

    whole = played(4, tmp_path / "whole")
    played(2, tmp_path / "halves")
    assert serialize(played(4, tmp_path / "halves", resume=True).state) == serialize(whole.state)


@pytest.mark.parametrize("sends", ["updates", "weights"])
def test_sixteen_bits_end_near_thirty_two(sends: Any, frozen_federation: Federation, rounds: RunRounds) -> None:
    sixteen = CodecChain((CODECS["float16"](),))
    algorithm = fedsplit(SOLVER, c=2, sends=sends)
    plain = rounds(frozen_federation, algorithm)
    half = rounds(frozen_federation, algorithm, channel=Channel(sixteen, sixteen))
    assert 0 < (half.state.params - plain.state.params).norm() < 0.02 * plain.state.params.norm()
    assert 2 * half.mailbox.traffic.payload_up == plain.mailbox.traffic.payload_up


def test_evaluation_sees_the_models_as_they_are(federation: Federation, rounds: RunRounds) -> None:
    """Codecs touch the algorithm's messages, never what is judged."""
    coarse = Channel(CodecChain(), CodecChain((CODECS["int4"](),)))
    running = rounds(federation, fedavg(SOLVER), 1, channel=coarse)
    plain = FederatedRun(make_plan(federation, fedavg(SOLVER), 1), running.executor, None, SilentProgress())
    plain.state = running.state
    assert plain.look_at_clients() == running.look_at_clients()
