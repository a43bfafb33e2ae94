"""Clients that answer a secure sum with what is none: they are left out, and the others finish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.sums import PATIENT, Line, Plainly, host_for, mean, vectors

from motet.core.errors import RunError
from motet.core.params import Params
from motet.core.script import rewrite_sums, run_script
from motet.core.weighted import Weighted
from motet.secure import SECURE, light_secagg, secagg, secagg_plus
from motet.secure.protocol import SecureSum
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Reply
from motet.transport.wait_policy import WaitPolicy

FIVE = {
    "secagg": secagg(threshold=0.5),
    "secagg_plus": secagg_plus(),
    "light_secagg": light_secagg(privacy=0.4, threshold=0.6),
}
every = pytest.mark.parametrize("name", FIVE)
LIAR = "client-002"
BOX = torch.zeros(40, dtype=torch.uint8)
Lie = Callable[[Any], Any]


class Lying(Line):
    """One client says something else in one stage."""

    stage: str
    lie: Lie

    def receive(self, timeout: float) -> Reply | None:
        reply = super().receive(timeout)
        if reply is not None and reply.client == LIAR and self.replies[-1][0] == self.stage:
            return replace(reply, value=self.lie(reply.value))
        return reply


def opened(secure: SecureSum, stage: str, lie: Lie, wait_policy: WaitPolicy = PATIENT) -> tuple[Weighted, Mailbox]:
    program = Plainly(vectors(5))
    line = Lying(host_for([program, secure], behind={"plainly": frozenset({"secure"})}))
    line.stage, line.lie = stage, lie
    mailbox = Mailbox(line, wait_policy)
    return run_script(rewrite_sums(secure, program.round()), mailbox.ask, lambda job: None), mailbox


def check(name: str, stage: str, lie: Lie) -> None:
    given = vectors(5)
    found, mailbox = opened(FIVE[name], stage, lie)
    heard = stage in ("confirm", "reveal")  # its vector is in the sum by then
    value, weight = mean(given, [c for c in given if heard or c != LIAR])
    assert found.weight == weight
    torch.testing.assert_close(found.value.flat, value.float(), rtol=0, atol=1e-5)
    assert {client for _, client, _ in mailbox.lost} == {LIAR}


@every
@pytest.mark.parametrize("stage", ["advertise", "share", "upload", "confirm", "reveal"])
@pytest.mark.parametrize(
    "value", [None, 7, "x", b"y", {"client-000": 3}, torch.zeros(3)], ids=lambda v: type(v).__name__
)
def test_nonsense_in_any_stage_is_one_clients_failure(name: str, stage: str, value: Any) -> None:
    if stage == "confirm" and isinstance(value, bytes):
        value = ()  # bytes are a signature, if a wrong one
    check(name, stage, lambda _: value)


@every
@pytest.mark.parametrize("kind", ["box", "mask"])
@pytest.mark.parametrize("public", [b"", bytes(32), (1).to_bytes(32, "little")], ids=["empty", "zero", "one"])
def test_keys_that_nobody_can_agree_with_do_not_keep_the_others_from_going_on(
    name: str, kind: str, public: bytes
) -> None:
    check(name, "advertise", lambda hello: replace(hello, **{kind: public}))


@every
def test_who_leaves_a_peer_without_its_share_is_left_out_itself(name: str) -> None:
    check(name, "share", lambda boxes: {to: box for to, box in boxes.items() if to != "client-000"})
    check(name, "share", lambda boxes: {**boxes, "nobody": BOX})
    check(name, "share", lambda boxes: {**boxes, LIAR: BOX})
    for no_box in (b"share", BOX.float(), BOX.reshape(2, -1)):
        check(name, "share", lambda boxes, no_box=no_box: {**boxes, "client-000": no_box})


@every
def test_masked_words_that_do_not_fit_their_layout_are_left_out(name: str) -> None:
    for lie in (
        lambda masked: replace(masked, words=masked.words[:-1]),
        lambda masked: replace(masked, words=torch.cat([masked.words, masked.words])),
        lambda masked: replace(masked, words=masked.words.long()),
        lambda masked: replace(masked, words=masked.words.reshape(1, -1)),
        lambda masked: replace(masked, double=True),
        lambda masked: replace(masked, layout=Params.from_tensors({"y": torch.zeros(7)}).layout),
    ):
        check(name, "upload", lie)


def test_words_that_are_no_elements_of_the_field_are_left_out() -> None:
    check("light_secagg", "upload", lambda masked: replace(masked, words=torch.full_like(masked.words, -1)))


def test_an_answer_of_another_length_is_left_out() -> None:
    check("light_secagg", "reveal", lambda answer: answer[:-1])


@every
def test_a_wrong_share_at_the_end_does_not_pass_for_a_sum(name: str) -> None:
    """Masks that come off wrongly leave words that look like any others; weights nobody can have give them away."""

    def lie(answer: Any) -> Any:
        if isinstance(answer, torch.Tensor):
            return answer ^ 0x2AAAAAAA
        return {whose: bytes(len(share)) for whose, share in answer.items()}

    with pytest.raises(RunError, match="weights that its clients cannot have"):
        opened(FIVE[name], "reveal", lie)


@pytest.mark.parametrize("name", [n for n in SECURE if n != "none"])
def test_without_leave_to_go_on_the_run_ends_and_says_who_it_was(name: str) -> None:
    with pytest.raises(RunError, match=rf"{LIAR}'s part of a secure sum is not of the form"):
        opened(SECURE[name](), "share", lambda _: None, WaitPolicy(on_error="fail"))
