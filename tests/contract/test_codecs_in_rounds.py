"""Codecs in a run: the traffic that they save, their effect on training, and their residuals in checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runs import make_plan, run_rounds

from motet.algorithms import fedavg, fedsplit
from motet.codecs import CODECS, Channel, CodecChain, int8, top_k
from motet.core.rng import Seed
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun, execute_plan
from motet.experiment.loop.run_result import RunResult
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.wire import serialize

SOLVER = Solver(optimizer="adamw", lr=0.01, batch=8)
SPARSE = Channel(CodecChain((top_k(0.1), int8())), CodecChain((int8(),)), Seed(5))
RESIDUAL = "residual.fedavg.train"


@pytest.mark.parametrize("name", CODECS)
def test_traffic_matches_the_size_that_the_codec_states(name: str, federation: Federation) -> None:
    chain = CodecChain((CODECS[name](),))
    traffic = run_rounds(federation, fedavg(SOLVER), 1, channel=Channel(up=chain)).engine.mailbox.traffic
    assert traffic.payload_up == len(federation.clients) * chain.encoded_size(federation.model.layout)
    assert traffic.payload_down == len(federation.clients) * 4 * federation.model.layout.size


def test_the_seed_determines_random_rounding(federation: Federation) -> None:
    first, second = (run_rounds(federation, fedavg(SOLVER), channel=SPARSE) for _ in range(2))
    other = run_rounds(federation, fedavg(SOLVER), channel=Channel(SPARSE.up, SPARSE.down, Seed(6)))
    assert serialize(first.state) == serialize(second.state)
    assert serialize(first.state) != serialize(other.state)


def test_each_client_keeps_its_residual(federation: Federation) -> None:
    running = run_rounds(federation, fedavg(SOLVER), 2, channel=SPARSE)
    for client in federation.clients:
        (residual,) = running.storage.client_states.get(RESIDUAL, client)
        assert residual.layout == federation.model.layout
        assert 0 < float((residual.flat == 0).float().mean()) < 0.5


def test_without_feedback_there_is_no_residual(federation: Federation) -> None:
    channel = Channel(CodecChain((top_k(0.1, feedback=False), int8())), SPARSE.down, Seed(5))
    running = run_rounds(federation, fedavg(SOLVER), 1, channel=channel)
    assert running.storage.client_states.get(RESIDUAL, "client-0") is None


def test_a_resumed_run_continues_with_its_residuals(federation: Federation, tmp_path: Path) -> None:
    def run_with_folder(count: int, folder: Path, resume: bool = False) -> RunResult:
        folder.mkdir(exist_ok=True)
        plan = make_plan(federation, fedavg(SOLVER), count, channel=SPARSE)
        return execute_plan(plan, SerialExecutor(torch.device("cpu")), folder=folder, resume=resume)

    uninterrupted = run_with_folder(4, tmp_path / "uninterrupted")
    run_with_folder(2, tmp_path / "resumed")
    resumed = run_with_folder(4, tmp_path / "resumed", resume=True)
    assert serialize(resumed.state) == serialize(uninterrupted.state)


@pytest.mark.parametrize("sends", ["updates", "weights"])
def test_float16_halves_the_traffic_and_stays_close_to_float32(sends: Any, frozen_federation: Federation) -> None:
    float16 = CodecChain((CODECS["float16"](),))
    algorithm = fedsplit(SOLVER, c=2, sends=sends)
    plain = run_rounds(frozen_federation, algorithm)
    half = run_rounds(frozen_federation, algorithm, channel=Channel(float16, float16))
    assert 0 < (half.state.params - plain.state.params).norm() < 0.02 * plain.state.params.norm()
    assert 2 * half.engine.mailbox.traffic.payload_up == plain.engine.mailbox.traffic.payload_up


def test_codecs_do_not_change_the_evaluated_models(federation: Federation) -> None:
    channel = Channel(CodecChain(), CodecChain((CODECS["int4"](),)))
    running = run_rounds(federation, fedavg(SOLVER), 1, channel=channel)
    plain = FederatedRun(make_plan(federation, fedavg(SOLVER), 1), running.engine.executor)
    plain.engine.restore(running.engine.progress)
    assert plain.evaluator.evaluate_clients().scores == running.evaluator.evaluate_clients().scores
