"""A mailbox sends requests and collects replies, whatever order they arrive in and whoever fails."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from motet.core.errors import ConfigError, RunError
from motet.core.params import Params
from motet.core.script import Exchange, _Replies
from motet.core.weighted import RunningSum, Weighted
from motet.transport.mailbox import Mailbox
from motet.transport.reorder_buffer import ReorderBuffer
from motet.transport.requests import Reply, Request, ValueWithUtility
from motet.transport.wait_policy import WaitPolicy
from motet.wire import measure_size


class ScriptedTransport:
    """Delivers replies in a given order, from a table. A string in the table is an error."""

    def __init__(self, replies: dict[str, Any], order: list[str]) -> None:
        self.replies, self.order, self.requests = replies, order, dict[str, Request]()

    def send(self, request: Request) -> None:
        self.requests[request.client] = request

    def receive(self, timeout: float) -> Reply | None:
        if not self.order:
            return None
        client = self.order.pop(0)
        value, request_id = self.replies[client], self.requests[client].id
        if isinstance(value, str):
            return Reply(request_id, client, error=value)
        return Reply(request_id, client, value)

    def close(self) -> None: ...


def make_vectors(count: int = 5) -> dict[str, Weighted]:
    generator = torch.Generator().manual_seed(1)
    scales = [1e-6, 1e3, 1.0, 1e-3, 7.0]
    return {
        f"c{i}": Weighted(Params.from_tensors({"w": torch.randn(50, generator=generator) * scales[i]}), i + 1)
        for i in range(count)
    }


def run_exchange(
    replies: dict[str, Any], order: list[str], wait_policy: WaitPolicy = WaitPolicy(), reads: str = "sum"
) -> tuple[Any, Mailbox]:
    mailbox = Mailbox(ScriptedTransport(replies, order), wait_policy)
    collector: Any = RunningSum if reads == "sum" else _Replies
    exchange = Exchange("p.m", dict.fromkeys(replies, None), reads, collector)  # type: ignore[arg-type]
    return mailbox.run_exchange(exchange), mailbox


def test_a_sum_is_the_same_to_the_bit_in_whatever_order_replies_arrive() -> None:
    vectors = make_vectors()
    orders = [sorted(vectors), sorted(vectors, reverse=True), ["c2", "c0", "c4", "c1", "c3"]]
    sums = [run_exchange(vectors, list(order))[0] for order in orders]
    assert all(torch.equal(s.value.flat, sums[0].value.flat) for s in sums)
    assert sums[0].weight == 15


def test_gathered_replies_are_sorted_by_client() -> None:
    replies, _ = run_exchange(make_vectors(), ["c3", "c1", "c0", "c4", "c2"], reads="each")
    assert list(replies) == ["c0", "c1", "c2", "c3", "c4"]


def test_a_failed_client_ends_the_exchange_with_its_error() -> None:
    replies = {**make_vectors(3), "c1": "client c1 has no data"}
    with pytest.raises(RunError, match=r"client c1 has no data .* wait_policy.on_error=drop"):
        run_exchange(replies, ["c0", "c1", "c2"])


def test_a_failed_client_can_be_dropped_and_is_recorded() -> None:
    replies = {**make_vectors(3), "c1": "client c1 has no data"}
    total, mailbox = run_exchange(replies, ["c2", "c1", "c0"], WaitPolicy(quorum=0.6, on_error="drop"))
    assert total.weight == 1 + 3
    assert mailbox.failures == [(0, "c1", "client c1 has no data")]


def test_an_exchange_below_the_quorum_fails_with_the_first_failure() -> None:
    replies = {**make_vectors(3), "c1": "no data"}
    with pytest.raises(RunError, match=r"2 of 3 clients replied; 3 are needed. First failure: c1: no data"):
        run_exchange(replies, ["c0", "c1", "c2"], WaitPolicy(on_error="drop"))


def test_a_client_that_does_not_reply_is_left_out() -> None:
    total, mailbox = run_exchange(make_vectors(3), ["c0", "c2"], WaitPolicy(quorum=0.5))
    assert total.weight == 1 + 3
    assert mailbox.failures == [(0, "c1", "did not reply")]


def test_traffic_is_counted_to_the_byte() -> None:
    vectors = make_vectors(3)
    _, mailbox = run_exchange(vectors, list(vectors))
    assert mailbox.traffic.payload_up == 3 * 50 * 4
    assert mailbox.traffic.payload_down == 0
    sizes = [measure_size(Reply(i + 1, client, value)).wire for i, (client, value) in enumerate(vectors.items())]
    assert mailbox.traffic.wire_up == sum(sizes)


def test_an_invalid_wait_policy_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"wait_policy\.quorum is 0"):
        WaitPolicy(quorum=0)
    with pytest.raises(ConfigError, match=r"wait_policy\.timeout is -1"):
        WaitPolicy(timeout=-1)


# ---- Invalid replies ------------------------------------------------------------------------------------------------


def make_invalid_replies() -> dict[str, Any]:
    valid = make_vectors(1)["c0"].value
    with_nan, with_infinity = valid.flat.clone(), valid.flat.clone()
    with_nan[7], with_infinity[7] = float("nan"), float("inf")
    return {
        "NaN": Weighted(Params(valid.layout, with_nan), 1.0),
        "infinity": Weighted(Params(valid.layout, with_infinity), 1.0),
        "another shape": Weighted(Params.from_tensors({"w": torch.ones(49)}), 1.0),
        "other names": Weighted(Params.from_tensors({"v": torch.ones(50)}), 1.0),
        "another dtype": Weighted(Params.from_tensors({"w": torch.ones(50, dtype=torch.float64)}), 1.0),
        "negative weight": Weighted(valid, -1.0),
        "infinite weight": Weighted(valid, float("inf")),
        "no weight": [1, 2, 3],
        "a utility of NaN": ValueWithUtility(Weighted(valid, 1.0), float("nan")),
        "a negative utility": ValueWithUtility(Weighted(valid, 1.0), -1.0),
        "a utility above every loss": ValueWithUtility(Weighted(valid, 1.0), 1e13),
    }


INVALID_REPLIES = make_invalid_replies()


@pytest.mark.parametrize("kind", INVALID_REPLIES)
def test_an_invalid_reply_is_counted_and_never_reaches_the_sum(kind: str) -> None:
    replies = {**make_vectors(3), "c1": INVALID_REPLIES[kind]}
    total, mailbox = run_exchange(replies, ["c2", "c1", "c0"], WaitPolicy(quorum=0.6, on_error="drop"))
    without, _ = run_exchange({client: replies[client] for client in ("c0", "c2")}, ["c0", "c2"])
    assert torch.equal(total.value.flat, without.value.flat)
    assert total.weight == without.weight
    assert mailbox.rejected == {"c1": 1}
    assert mailbox.replied.keys() == {"c0", "c2"}
    with pytest.raises(RunError, match="c1: "):
        run_exchange(replies, ["c0", "c1", "c2"])


def test_a_gathered_reply_with_nan_is_rejected() -> None:
    with pytest.raises(RunError, match="not finite"):
        run_exchange({"c0": {"logits": torch.tensor([1.0, float("nan")])}}, ["c0"], reads="each")


# ---- Early and late replies -----------------------------------------------------------------------------------------


class SilentTransport:
    """No client ever replies."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def send(self, request: Request) -> None:
        self.requests.append(request)

    def receive(self, timeout: float) -> Reply | None:
        return None

    def close(self) -> None: ...


class LateTransport(SilentTransport):
    """In each exchange the clients of the next list in `orders` reply, in that order.

    "late" in a list stands for `late_reply`, a reply to an earlier request.
    """

    def __init__(self, vectors: dict[str, Weighted], orders: list[list[str]]) -> None:
        super().__init__()
        self.vectors, self.orders, self.current = vectors, orders, list[str]()
        self.late_reply: Reply | None = None

    def send(self, request: Request) -> None:
        super().send(request)
        if not self.current and self.orders:
            self.current = self.orders.pop(0)

    def receive(self, timeout: float) -> Reply | None:
        if not self.current:
            return None
        client = self.current.pop(0)
        return self.late_reply if client == "late" else self.make_reply(client)

    def make_reply(self, client: str) -> Reply:
        request = next(r for r in reversed(self.requests) if r.client == client)
        return Reply(request.id, client, self.vectors[client])


def make_sum(vectors: dict[str, Weighted], address: str = "p.m") -> Exchange:
    return Exchange(address, dict.fromkeys(vectors, None), "sum", RunningSum)


def test_an_eager_mailbox_continues_with_the_first_replies() -> None:
    vectors = make_vectors(5)
    transport = LateTransport(vectors, [["c3", "c1", "c4", "c0", "c2"]])
    mailbox = Mailbox(transport, WaitPolicy(quorum=0.6, stop_at_quorum=True))
    assert mailbox.run_exchange(make_sum(vectors)).weight == 4 + 2 + 5
    assert sorted(failure.client for failure in mailbox.failures) == ["c0", "c2"]


def test_a_late_client_gets_no_new_request_and_its_reply_counts_less() -> None:
    vectors = make_vectors(4)
    transport = LateTransport(vectors, [["c0", "c1", "c2"], ["c3", "c0", "c1"]])
    mailbox = Mailbox(transport, WaitPolicy(quorum=0.75, stop_at_quorum=True, staleness_exponent=0.5))
    assert mailbox.run_exchange(make_sum(vectors)).weight == 1 + 2 + 3
    mailbox.round = 1
    total = mailbox.run_exchange(make_sum(vectors))
    assert [request.client for request in transport.requests] == ["c0", "c1", "c2", "c3", "c0", "c1", "c2"]
    assert total.weight == pytest.approx(4 * 2**-0.5 + 1 + 2)
    assert not mailbox.failures
    assert {request.client for request in mailbox.pending.values()} == {"c2"}


def test_a_late_reply_is_ignored_without_a_staleness_exponent() -> None:
    vectors = make_vectors(2)
    transport = LateTransport(vectors, [["c0"], ["late", "c0"]])
    mailbox = Mailbox(transport, WaitPolicy(quorum=0.5, stop_at_quorum=True))
    mailbox.run_exchange(make_sum(vectors))
    transport.late_reply = transport.make_reply("c1")
    mailbox.round = 1
    assert mailbox.run_exchange(make_sum(vectors)).weight == 1
    assert [failure.client for failure in mailbox.failures] == ["c1", "c1"]


def test_a_late_reply_reaches_its_mailbox_although_a_sibling_receives_it() -> None:
    vectors = make_vectors(2)
    transport = LateTransport(vectors, [["c0"], ["late", "c0"], []])
    mailbox = Mailbox(transport, WaitPolicy(quorum=0.5, stop_at_quorum=True, staleness_exponent=1.0))
    sibling = mailbox.create_sibling(waits_for_all=True)
    mailbox.run_exchange(make_sum(vectors))
    transport.late_reply = transport.make_reply("c1")
    sibling.run_exchange(Exchange("e.m", {"c0": None}, "each", _Replies))
    assert [request.id for request in transport.requests] == [1, 2, -1]  # the two never use the same ID
    mailbox.round = 1
    assert mailbox.run_exchange(make_sum(vectors)).weight == 2 / (1 + 1)  # the late reply is the quorum


def test_an_exchange_ends_at_its_deadline() -> None:
    mailbox = Mailbox(SilentTransport(), WaitPolicy(quorum=0.5, deadline=1e-9))
    with pytest.raises(RunError, match="0 of 2 clients replied"):
        mailbox.run_exchange(make_sum(make_vectors(2)))


def test_early_replies_use_limited_memory() -> None:
    buffer = ReorderBuffer(budget=4 * 60)
    for client, value in make_vectors(5).items():
        buffer.put((client, 0), Reply(1, client, value), 4 * 50)
    assert buffer.bytes_in_memory <= 4 * 60
    assert [buffer.take(position).value.weight for position in buffer.positions()] == [1, 2, 3, 4, 5]
    assert not len(buffer)
    assert buffer.bytes_in_memory == 0
