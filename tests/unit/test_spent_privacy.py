"""A crash neither forgets the privacy that was spent nor draws the noise of one release twice."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runs import advance, make_plan, start_run
from tests.sums import VectorProgram, make_runtime, make_vectors

from motet.algorithms import fedavg
from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.weighted import Weighted
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun, execute_plan
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.privacy import central, distributed, local
from motet.privacy.accountant_log import AccountantLog
from motet.privacy.dp_sum import ClipRequest
from motet.privacy.noise_key import derive_noise, load_noise_key
from motet.secure import secagg
from motet.transport.requests import Request

SOLVER = Solver(optimizer="sgd", lr=0.1, batch=8)
KEY = bytes(32)


class Killed(BaseException):
    """Ends a run like kill -9: nothing is saved after it."""


def start_private_run(federation: Federation, folder: Path, mechanism: Any, **options: Any) -> FederatedRun:
    """Start a run as a new process does: with the noise key in its folder, from the last checkpoint."""
    privacy = replace(mechanism, noise_key=load_noise_key(folder / "checkpoint"))
    run = start_run(federation, fedavg(SOLVER), 3, folder=folder, privacy=privacy, **options)
    run.resume()
    return run


def spent_sums(run: FederatedRun) -> int:
    assert run.engine.accountant is not None
    return run.engine.accountant.sum_count


def test_a_release_that_a_resumed_run_repeats_has_the_same_noise_and_counts_once(
    federation: Federation, tmp_path: Path
) -> None:
    killed = advance(start_private_run(federation, tmp_path, central(0.5, 2.0)))  # killed before its checkpoint
    resumed = start_private_run(federation, tmp_path, central(0.5, 2.0))
    assert (resumed.rounds, spent_sums(resumed)) == (0, 1), "the accountant has counted more than the checkpoint"
    advance(resumed)
    assert spent_sums(resumed) == 1
    assert torch.equal(resumed.state.params.flat, killed.state.params.flat)


def test_a_resumed_round_with_other_clients_counts_again_and_has_other_noise(
    federation: Federation, tmp_path: Path
) -> None:
    """The shown ε was 4.7 after such crashes, the true one 10.7."""
    mechanism = central(0.5, 2.0)
    for crash in range(3):
        run = start_private_run(federation, tmp_path, mechanism)
        advance(run, cohort=list(federation.clients)[crash:])
    last = start_private_run(federation, tmp_path, mechanism)
    assert spent_sums(last) == 3
    assert last.engine.accountant is not None
    assert last.engine.accountant.sums_by_client[list(federation.clients)[-1]] == 3


@pytest.mark.parametrize("mechanism", [local(0.5, 2.0), distributed(0.5, 2.0)], ids=["local", "distributed"])
def test_noise_of_clients_counts_when_it_is_requested(mechanism: Any, federation: Federation, tmp_path: Path) -> None:
    """A server that is killed before the replies arrive cannot know what was sent."""
    options = {"secure": secagg()} if mechanism.trust_model == "distributed" else {}
    run = start_private_run(federation, tmp_path, mechanism, **options)

    def kill(exchange: Any) -> None:
        exchange.on_start()
        raise Killed

    run.engine.mailbox.run_exchange = kill  # type: ignore[method-assign]
    with pytest.raises(Killed):
        advance(run)
    assert spent_sums(start_private_run(federation, tmp_path, mechanism, **options)) >= 1


def test_a_budget_that_crashes_have_used_up_ends_the_run(federation: Federation, tmp_path: Path) -> None:
    one_round = central(0.5, 2.0, budget=3.5)
    for crash in range(3):
        advance(start_private_run(federation, tmp_path, one_round), cohort=list(federation.clients)[crash:])
    result = execute_plan(
        make_plan(federation, fedavg(SOLVER), 3, privacy=one_round),
        SerialExecutor(torch.device("cpu")),
        folder=tmp_path,
        resume=True,
    )
    assert result.rounds == 0


def test_a_client_repeats_a_noisy_reply_and_draws_new_noise_for_another_one() -> None:
    vectors = make_vectors(1, size=50)
    client = next(iter(vectors))

    def reply(noise_key: bytes, vector: Weighted) -> Params:
        mechanism = replace(local(0.5, 2.0), noise_key=noise_key)
        runtime = make_runtime([VectorProgram({client: vector}), mechanism])
        request = Request(1, client, 0, "private.clipped", ClipRequest("vectors.send_vector", None))
        value: Weighted = next(runtime.answer_requests(iter([request]))).value
        return value.value

    original, other = vectors[client], Weighted(vectors[client].value * 0.999, 1.0)
    first = reply(KEY, original)
    assert torch.equal(first.flat, reply(KEY, original).flat), "after a restart"
    assert not torch.allclose(first.flat, reply(KEY, other).flat, atol=0.1), "noise of two replies must not cancel"
    assert not torch.allclose(first.flat, reply(b"x" * 32, original).flat, atol=0.1)


def test_noise_from_a_key_is_standard_normal_and_depends_on_every_number() -> None:
    numbers = torch.zeros(1000)
    noise = derive_noise(KEY, 5, numbers).standard_normal(20_000)
    assert abs(noise.mean()) < 0.03 and abs(noise.std() - 1) < 0.03
    numbers[-1] = 1e-30
    assert derive_noise(KEY, 5, numbers).standard_normal() != noise[0]
    assert derive_noise(KEY, 6, torch.zeros(1000)).standard_normal() != noise[0]


def test_the_noise_key_is_created_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    key = load_noise_key(tmp_path / "run")
    assert load_noise_key(tmp_path / "run") == key != load_noise_key(tmp_path / "other")
    assert stat.S_IMODE((tmp_path / "run" / "noise_key").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["noise_key"]


def test_half_a_line_in_the_log_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "accountant.jsonl"
    AccountantLog(path).append("first", ["a", "b"])
    path.write_text(path.read_text() + '\n["second", ["a"')
    log = AccountantLog(path)
    assert not log.append("first", ["a", "b"])
    assert log.append("second", ["a"])
    assert AccountantLog(path).releases == {"first": ("a", "b"), "second": ("a",)}


def test_a_first_round_above_the_budget_is_still_rejected(federation: Federation) -> None:
    with pytest.raises(ConfigError, match="first round alone"):
        start_run(federation, fedavg(SOLVER), 3, privacy=central(0.5, 2.0, budget=0.1))
