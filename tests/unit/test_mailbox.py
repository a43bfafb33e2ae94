from __future__ import annotations

from typing import Any

import pytest
import torch

from motet.codecs import CODECS
from motet.codecs.channel import Chain, Channel
from motet.core.errors import ConfigError, RunError
from motet.core.params import Params
from motet.core.script import Exchange, _Replies
from motet.core.weighted import RunningSum, Weighted
from motet.transport.mailbox import Mailbox
from motet.transport.messages import Reply, Request
from motet.transport.patience import Patience
from motet.wire import measure


class Post:
    """Answers in the order it is told, from a table; None for a client that stays silent."""

    def __init__(self, answers: dict[str, Any], order: list[str]) -> None:
        self.answers, self.order, self.asked = answers, order, dict[str, Request]()

    def send(self, request: Request) -> None:
        self.asked[request.client] = request

    def receive(self, timeout: float) -> Reply | None:
        while self.order:
            client = self.order.pop(0)
            if client in self.answers:
                answer = self.answers[client]
                number = self.asked[client].id
                return Reply(number, client, error=answer) if isinstance(answer, str) else Reply(number, client, answer)
        return None

    def close(self) -> None: ...


def vectors(count: int = 5) -> dict[str, Weighted]:
    g = torch.Generator().manual_seed(1)
    scale = [1e-6, 1e3, 1.0, 1e-3, 7.0]
    return {f"c{i}": Weighted(Params.of({"w": torch.randn(50, generator=g) * scale[i]}), i + 1) for i in range(count)}


def asked(
    answers: dict[str, Any], order: list[str], patience: Patience = Patience(), reads: str = "sum"
) -> tuple[Any, Mailbox]:
    mailbox = Mailbox(Post(answers, order), patience)
    collector: Any = RunningSum if reads == "sum" else _Replies
    exchange = Exchange("p.m", dict.fromkeys(answers, None), reads, collector)  # type: ignore[arg-type]
    return mailbox.ask(exchange), mailbox


def test_a_sum_is_the_same_to_the_bit_in_whatever_order_replies_come() -> None:
    answers = vectors()
    orders = [sorted(answers), sorted(answers, reverse=True), ["c2", "c0", "c4", "c1", "c3"]]
    sums = [asked(answers, list(order))[0] for order in orders]
    assert all(torch.equal(s.value.flat, sums[0].value.flat) for s in sums)
    assert sums[0].weight == 15


def test_gathered_replies_are_in_the_order_of_the_clients() -> None:
    replies, _ = asked(vectors(), ["c3", "c1", "c0", "c4", "c2"], reads="each")
    assert list(replies) == ["c0", "c1", "c2", "c3", "c4"]


def test_a_client_that_fails_ends_the_question_with_its_sentence() -> None:
    answers = {**vectors(3), "c1": "client c1 has no data"}
    with pytest.raises(RunError, match=r"client c1 has no data .* patience.on_error=drop"):
        asked(answers, ["c0", "c1", "c2"])


def test_a_client_that_fails_can_be_dropped_and_is_remembered() -> None:
    answers = {**vectors(3), "c1": "client c1 has no data"}
    total, mailbox = asked(answers, ["c2", "c1", "c0"], Patience(quorum=0.6, on_error="drop"))
    assert total.weight == 1 + 3
    assert mailbox.lost == [(0, "c1", "client c1 has no data")]


def test_below_the_quorum_the_question_fails_with_a_reason() -> None:
    answers = {**vectors(3), "c1": "no data"}
    with pytest.raises(RunError, match=r"2 of 3 clients answered and 3 are needed. First failure: c1: no data"):
        asked(answers, ["c0", "c1", "c2"], Patience(on_error="drop"))


def test_a_silent_client_is_waited_for_and_then_left_out() -> None:
    total, mailbox = asked(vectors(3), ["c0", "c2"], Patience(quorum=0.5))
    assert total.weight == 1 + 3
    assert mailbox.lost == [(0, "c1", "did not answer")]


def test_traffic_is_counted_to_the_byte() -> None:
    answers = vectors(3)
    _, mailbox = asked(answers, list(answers))
    assert mailbox.traffic.payload_up == 3 * 50 * 4
    assert mailbox.traffic.payload_down == 0
    assert mailbox.traffic.wire_up == sum(measure(Reply(i + 1, c, v)).wire for i, (c, v) in enumerate(answers.items()))


@pytest.mark.parametrize("name", CODECS)
def test_codecs_halve_the_traffic_and_keep_the_numbers(name: str) -> None:
    chain = Chain((CODECS[name](),))
    value = Weighted(Params.of({"w": torch.linspace(-3, 3, 1000)}), 250.0)
    coded = chain.encode({"deep": [value]})
    back = chain.decode(coded)["deep"][0]
    assert measure(coded).payload == 2 * 1000
    assert back.weight == 250
    step = 2**-11 if name == "float16" else 2**-8
    assert ((back.value - value.value).flat.abs() <= step * value.value.flat.abs() + 1e-7).all()


def test_codecs_leave_counts_alone() -> None:
    chain = Channel(up=Chain((CODECS["float16"](),))).up
    counts = Params.counts(hits=123457)
    assert chain.encode(counts) is counts


def test_patience_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"patience\.quorum is 0"):
        Patience(quorum=0)
    with pytest.raises(ConfigError, match=r"patience\.timeout is -1"):
        Patience(timeout=-1)
