"""A server that is restarted in the middle of a round repeats only the exchange that was not finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.transports import AnsweringTransport

from motet.core.params import Params
from motet.core.script import Exchange
from motet.core.weighted import RunningSum, Weighted
from motet.experiment.loop.exchange_log import ExchangeLog
from motet.transport.mailbox import Mailbox, Observation
from motet.transport.requests import Reply, Request, ValueWithUtility
from motet.transport.wait_policy import WaitPolicy


def answer(request: Request) -> Reply:
    """Reply with numbers that depend on the ID of the request. The client b fails."""
    error = "no memory" if request.client == "b" else None
    term = Weighted(Params.from_tensors({"w": torch.full((3,), request.id / 3)}), 1.0)
    # One training in a round, in the first exchange.
    value = ValueWithUtility(term, 5.0) if request.address == "p.step1" else term
    return Reply(request.id, request.client, value, error=error)


def start_server(folder: Path) -> tuple[ExchangeLog, AnsweringTransport, Mailbox]:
    transport = AnsweringTransport(answer)
    mailbox = Mailbox(transport, WaitPolicy(quorum=0.5, on_error="drop"), durations={"a": 2.5})
    return ExchangeLog(folder, mailbox), transport, mailbox


def make_exchange(step: int, clients: str = "a") -> Exchange:
    return Exchange(f"p.step{step}", dict.fromkeys(clients), "sum", RunningSum)


def test_finished_exchanges_are_not_repeated(tmp_path: Path) -> None:
    log, _, mailbox = start_server(tmp_path)
    expected: list[Any] = [log.run_exchange(make_exchange(step)) for step in (1, 2, 3)]
    restarted, transport, other_mailbox = start_server(tmp_path)
    logged = [restarted.run_exchange(make_exchange(step)) for step in (1, 2)]
    assert not transport.requests
    assert all(torch.equal(a.value.flat, b.value.flat) for a, b in zip(expected, logged, strict=False))
    repeated = restarted.run_exchange(make_exchange(3))  # no exchange followed it, so it was not logged
    assert [request.id for request in transport.requests] == [3]
    assert torch.equal(repeated.value.flat, expected[2].value.flat)
    assert other_mailbox.traffic == mailbox.traffic


def test_results_of_other_rounds_are_deleted(tmp_path: Path) -> None:
    log, transport, mailbox = start_server(tmp_path)
    for round in (0, 1):
        mailbox.start_round(round)
        for step in (1, 2):
            log.run_exchange(make_exchange(step))
    assert [request.round for request in transport.requests] == [0, 0, 1, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["1-1"]


@pytest.mark.parametrize("damage", [b"", b"rubbish"])
def test_an_exchange_with_a_damaged_result_is_repeated(damage: bytes, tmp_path: Path) -> None:
    log, _, _ = start_server(tmp_path)
    log.run_exchange(make_exchange(1))
    log.run_exchange(make_exchange(2))
    (tmp_path / "0-1").write_bytes(damage)
    restarted, transport, _ = start_server(tmp_path)
    restarted.run_exchange(make_exchange(1))
    assert len(transport.requests) == 1


def test_failures_and_observations_of_finished_exchanges_are_kept(tmp_path: Path) -> None:
    log, _, mailbox = start_server(tmp_path)
    restarted, _, other_mailbox = start_server(tmp_path)
    for server in (log, restarted):
        for step in (1, 2):
            server.run_exchange(make_exchange(step, "ab"))
    assert [(failure.client, failure.reason) for failure in mailbox.failures] == [("b", "no memory")] * 2
    assert other_mailbox.failures == mailbox.failures
    assert mailbox.replied == {"a": Observation(5.0, 2.5)}
    assert other_mailbox.replied == mailbox.replied
