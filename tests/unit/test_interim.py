"""A server that dies inside a round asks again only what was not answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from motet.core.params import Params
from motet.core.script import Exchange
from motet.core.weighted import RunningSum, Weighted
from motet.experiment.loop.exchange_log import ExchangeLog
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Reply, Request


class Echo:
    def __init__(self) -> None:
        self.asked: list[Request] = []

    def send(self, request: Request) -> None:
        self.asked.append(request)

    def receive(self, timeout: float) -> Reply | None:
        request = self.asked[-1]
        return Reply(
            request.id, request.client, Weighted(Params.from_tensors({"w": torch.full((3,), request.id / 3)}), 1.0)
        )

    def close(self) -> None: ...


def server(folder: Path) -> tuple[ExchangeLog, Echo, Mailbox]:
    post = Echo()
    mailbox = Mailbox(post)
    return ExchangeLog(folder, mailbox), post, mailbox


def question(step: int) -> Exchange:
    return Exchange(f"p.step{step}", {"a": None}, "sum", RunningSum)


def test_finished_exchanges_are_not_asked_again(tmp_path: Path) -> None:
    interim, _, mailbox = server(tmp_path)
    answers: list[Any] = [interim.run_exchange(question(step)) for step in (1, 2, 3)]
    again, post, other = server(tmp_path)  # another process; the third answer was not yet followed by anything
    found = [again.run_exchange(question(step)) for step in (1, 2)]
    assert not post.asked
    assert all(torch.equal(a.value.flat, b.value.flat) for a, b in zip(answers, found, strict=False))
    last = again.run_exchange(question(3))
    assert [r.id for r in post.asked] == [3]
    assert torch.equal(last.value.flat, answers[2].value.flat)
    assert other.traffic == mailbox.traffic


def test_answers_of_another_round_are_forgotten(tmp_path: Path) -> None:
    interim, post, mailbox = server(tmp_path)
    for round in (0, 1):
        mailbox.round = round
        for step in (1, 2):
            interim.run_exchange(question(step))
    assert [r.round for r in post.asked] == [0, 0, 1, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["1-1"]


@pytest.mark.parametrize("damage", [b"", b"rubbish"])
def test_an_answer_that_was_half_written_is_asked_for_again(damage: bytes, tmp_path: Path) -> None:
    interim, _, _ = server(tmp_path)
    interim.run_exchange(question(1))
    interim.run_exchange(question(2))
    (tmp_path / "0-1").write_bytes(damage)
    again, post, _ = server(tmp_path)
    again.run_exchange(question(1))
    assert len(post.asked) == 1
