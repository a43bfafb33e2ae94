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
from motet.transport.requests import Reply, Request
from motet.transport.wait_policy import WaitPolicy
from motet.wire import measure_size


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
    return {
        f"c{i}": Weighted(Params.from_tensors({"w": torch.randn(50, generator=g) * scale[i]}), i + 1)
        for i in range(count)
    }


def asked(
    answers: dict[str, Any], order: list[str], wait_policy: WaitPolicy = WaitPolicy(), reads: str = "sum"
) -> tuple[Any, Mailbox]:
    mailbox = Mailbox(Post(answers, order), wait_policy)
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
    with pytest.raises(RunError, match=r"client c1 has no data .* wait_policy.on_error=drop"):
        asked(answers, ["c0", "c1", "c2"])


def test_a_client_that_fails_can_be_dropped_and_is_remembered() -> None:
    answers = {**vectors(3), "c1": "client c1 has no data"}
    total, mailbox = asked(answers, ["c2", "c1", "c0"], WaitPolicy(quorum=0.6, on_error="drop"))
    assert total.weight == 1 + 3
    assert mailbox.lost == [(0, "c1", "client c1 has no data")]


def test_below_the_quorum_the_question_fails_with_a_reason() -> None:
    answers = {**vectors(3), "c1": "no data"}
    with pytest.raises(RunError, match=r"2 of 3 clients answered and 3 are needed. First failure: c1: no data"):
        asked(answers, ["c0", "c1", "c2"], WaitPolicy(on_error="drop"))


def test_a_silent_client_is_waited_for_and_then_left_out() -> None:
    total, mailbox = asked(vectors(3), ["c0", "c2"], WaitPolicy(quorum=0.5))
    assert total.weight == 1 + 3
    assert mailbox.lost == [(0, "c1", "did not answer")]


def test_traffic_is_counted_to_the_byte() -> None:
    answers = vectors(3)
    _, mailbox = asked(answers, list(answers))
    assert mailbox.traffic.payload_up == 3 * 50 * 4
    assert mailbox.traffic.payload_down == 0
    assert mailbox.traffic.wire_up == sum(
        measure_size(Reply(i + 1, c, v)).wire for i, (c, v) in enumerate(answers.items())
    )


def test_patience_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"wait_policy\.quorum is 0"):
        WaitPolicy(quorum=0)
    with pytest.raises(ConfigError, match=r"wait_policy\.timeout is -1"):
        WaitPolicy(timeout=-1)


# ---- what is not fit to be used ---------------------------------------------------------------------------------------


def spoilt(kind: str) -> Any:
    good = vectors(1)["c0"]
    flat = good.value.flat.clone()
    flat[7] = {"nan": float("nan"), "infinite": float("inf")}.get(kind, 0.0)
    return {
        "nan": Weighted(Params(good.value.layout, flat), 1.0),
        "infinite": Weighted(Params(good.value.layout, flat), 1.0),
        "another shape": Weighted(Params.from_tensors({"w": torch.ones(49)}), 1.0),
        "other names": Weighted(Params.from_tensors({"v": torch.ones(50)}), 1.0),
        "another precision": Weighted(Params.from_tensors({"w": torch.ones(50, dtype=torch.float64)}), 1.0),
        "negative weight": Weighted(good.value, -1.0),
        "endless weight": Weighted(good.value, float("inf")),
        "no sum": [1, 2, 3],
    }[kind]


KINDS = [
    "nan",
    "infinite",
    "another shape",
    "other names",
    "another precision",
    "negative weight",
    "endless weight",
    "no sum",
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_unsound_reply_never_reaches_a_sum_and_is_counted(kind: str) -> None:
    answers = {**vectors(3), "c1": spoilt(kind)}
    total, mailbox = asked(answers, ["c2", "c1", "c0"], WaitPolicy(quorum=0.6, on_error="drop"))
    clean, _ = asked({k: v for k, v in answers.items() if k != "c1"}, ["c0", "c2"])
    assert torch.equal(total.value.flat, clean.value.flat)
    assert total.weight == clean.weight
    assert mailbox.refused == {"c1": 1}
    with pytest.raises(RunError, match="c1: "):
        asked(answers, ["c0", "c1", "c2"])


def test_a_gathered_reply_that_is_not_finite_is_refused() -> None:
    with pytest.raises(RunError, match="not finite"):
        asked({"c0": {"logits": torch.tensor([1.0, float("nan")])}}, ["c0"], reads="each")


# ---- early and late -----------------------------------------------------------------------------------------------------


class Silence:
    """Nobody ever answers."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def send(self, request: Request) -> None:
        self.asked.append(request)

    def receive(self, timeout: float) -> Reply | None:
        return None

    def close(self) -> None: ...


class Prompt(Silence):
    """Whoever is in `quick` answers, a list for each question, in that order; "late …" is an answer kept from before."""

    def __init__(self, answers: dict[str, Weighted], quick: list[list[str]]) -> None:
        super().__init__()
        self.answers, self.quick, self.plan = answers, quick, list[str]()
        self.late: Reply | None = None

    def send(self, request: Request) -> None:
        super().send(request)
        if not self.plan and self.quick:
            self.plan = self.quick.pop(0)

    def receive(self, timeout: float) -> Reply | None:
        if not self.plan:
            return None
        client = self.plan.pop(0)
        return self.late if client.startswith("late") else self.says(client, self.answers[client])

    def says(self, client: str, value: Any) -> Reply:
        request = next(r for r in reversed(self.asked) if r.client == client)
        return Reply(request.id, client, value)


def question(answers: dict[str, Weighted], address: str = "p.m") -> Exchange:
    return Exchange(address, dict.fromkeys(answers, None), "sum", RunningSum)


def test_an_eager_mailbox_goes_on_with_the_first_that_answer() -> None:
    answers = vectors(5)
    post = Prompt(answers, [["c3", "c1", "c4", "c0", "c2"]])
    mailbox = Mailbox(post, WaitPolicy(quorum=0.6, eager=True))
    total = mailbox.ask(question(answers))
    assert total.weight == 4 + 2 + 5
    assert sorted(client for _, client, _ in mailbox.lost) == ["c0", "c2"]


def test_who_is_late_is_not_asked_again_and_counts_less_when_it_comes() -> None:
    answers = vectors(4)
    post = Prompt(answers, [["c0", "c1", "c2"], ["c3", "c0", "c1"]])
    mailbox = Mailbox(post, WaitPolicy(quorum=0.75, eager=True, staleness_exponent=0.5))
    assert mailbox.ask(question(answers)).weight == 1 + 2 + 3
    mailbox.round = 1
    late = mailbox.ask(question(answers))
    assert [r.client for r in post.asked] == ["c0", "c1", "c2", "c3", "c0", "c1", "c2"]
    assert late.weight == pytest.approx(4 * 2**-0.5 + 1 + 2)
    assert not mailbox.lost
    assert {a.client for a in mailbox.open.values()} == {"c2"}


def test_a_late_reply_counts_nothing_where_nothing_was_said_of_it() -> None:
    answers = vectors(2)
    post = Prompt(answers, [["c0"], ["late c1", "c0"]])
    mailbox = Mailbox(post, WaitPolicy(quorum=0.5, eager=True))
    mailbox.ask(question(answers))
    post.late = post.says("c1", answers["c1"])
    mailbox.round = 1
    assert mailbox.ask(question(answers)).weight == 1
    assert [client for _, client, _ in mailbox.lost] == ["c1", "c1"]


def test_what_is_late_for_one_mailbox_is_not_lost_to_another_on_the_same_transport() -> None:
    answers = vectors(2)
    post = Prompt(answers, [["c0"], ["late c1", "c0"], []])
    mailbox = Mailbox(post, WaitPolicy(quorum=0.5, eager=True, staleness_exponent=1.0))
    survey = mailbox.beside()
    mailbox.ask(question(answers))
    post.late = post.says("c1", answers["c1"])
    survey.ask(Exchange("e.m", {"c0": None}, "each", _Replies))
    assert [r.id for r in post.asked] == [1, 2, -1]  # the two never give the same number
    mailbox.round = 1
    assert mailbox.ask(question(answers)).weight == 2 / (1 + 1)  # what came meanwhile is the quorum


def test_a_question_ends_at_its_deadline() -> None:
    mailbox = Mailbox(Silence(), WaitPolicy(quorum=0.5, deadline=1e-9))
    with pytest.raises(RunError, match="0 of 2 clients answered"):
        mailbox.ask(question(vectors(2)))


def test_replies_that_wait_for_their_turn_do_not_fill_the_memory() -> None:
    waiting = ReorderBuffer(budget=4 * 60)
    for client, value in vectors(5).items():
        waiting.put((client, 0), Reply(1, client, value), 4 * 50)
    assert waiting.held <= 4 * 60
    assert [waiting.take(place).value.weight for place in waiting.places()] == [1, 2, 3, 4, 5]
    assert not len(waiting)
    assert waiting.held == 0
