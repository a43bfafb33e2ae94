"""A client that sends invalid messages in a secure sum is left out, and the others finish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.sums import (
    BEHIND_SECURE_SUM,
    TOLERANT,
    LossyTransport,
    VectorProgram,
    exact_mean,
    make_runtime,
    make_vectors,
    run_sum,
)

from motet.core.errors import RunError
from motet.core.params import Params
from motet.core.script import rewrite_sums
from motet.core.weighted import Weighted
from motet.secure import SECURE, light_secagg, secagg, secagg_plus
from motet.secure.protocol import SecureSum
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Reply
from motet.transport.wait_policy import WaitPolicy

THREE_OF_FIVE = {  # three of five clients must finish
    "secagg": secagg(threshold=0.5),
    "secagg_plus": secagg_plus(),
    "light_secagg": light_secagg(colluders=0.4, threshold=0.6),
}
with_every_protocol = pytest.mark.parametrize("name", THREE_OF_FIVE)
MALICIOUS = "client-002"
CIPHERTEXT = torch.zeros(40, dtype=torch.uint8)
Forge = Callable[[Any], Any]


class ForgingTransport(LossyTransport):
    """Replaces the malicious client's reply in one stage."""

    stage: str
    forge: Forge

    def receive(self, timeout: float) -> Reply | None:
        reply = super().receive(timeout)
        if reply is not None and reply.client == MALICIOUS and self.replies[-1][0] == self.stage:
            return replace(reply, value=self.forge(reply.value))
        return reply


def run_forged_sum(
    secure: SecureSum, stage: str, forge: Forge, wait_policy: WaitPolicy = TOLERANT
) -> tuple[Weighted, Mailbox]:
    program = VectorProgram(make_vectors(5))
    transport = ForgingTransport(make_runtime([program, secure], required_wrappers=BEHIND_SECURE_SUM))
    transport.stage, transport.forge = stage, forge
    mailbox = Mailbox(transport, wait_policy)
    return run_sum(rewrite_sums(secure, program.round()), mailbox), mailbox


def check_client_is_left_out(name: str, stage: str, forge: Forge) -> None:
    vectors = make_vectors(5)
    mean, mailbox = run_forged_sum(THREE_OF_FIVE[name], stage, forge)
    is_in_sum = stage in ("confirm", "reveal")  # it has uploaded its vector by then
    value, weight = exact_mean(vectors, [client for client in vectors if is_in_sum or client != MALICIOUS])
    assert mean.weight == weight
    torch.testing.assert_close(mean.value.flat, value.float(), rtol=0, atol=1e-5)
    assert {failure.client for failure in mailbox.failures} == {MALICIOUS}


@with_every_protocol
@pytest.mark.parametrize("stage", ["advertise", "share", "upload", "confirm", "reveal"])
@pytest.mark.parametrize(
    "value", [None, 7, "x", b"y", {"client-000": 3}, torch.zeros(3)], ids=lambda value: type(value).__name__
)
def test_a_reply_of_the_wrong_type_is_a_failure_of_its_client(name: str, stage: str, value: Any) -> None:
    if stage == "confirm" and isinstance(value, bytes):
        value = ()  # bytes would have the type of a signature
    check_client_is_left_out(name, stage, lambda _: value)


@with_every_protocol
@pytest.mark.parametrize("key", ["encryption_key", "mask_key"])
@pytest.mark.parametrize("public", [b"", bytes(32), (1).to_bytes(32, "little")], ids=["empty", "zero", "one"])
def test_invalid_keys_do_not_stop_the_other_clients(name: str, key: str, public: bytes) -> None:
    check_client_is_left_out(name, "advertise", lambda public_keys: replace(public_keys, **{key: public}))


@with_every_protocol
def test_a_client_that_omits_or_invents_shares_is_left_out(name: str) -> None:
    def omit_share(shares: Any) -> Any:
        return {holder: share for holder, share in shares.items() if holder != "client-000"}

    check_client_is_left_out(name, "share", omit_share)
    check_client_is_left_out(name, "share", lambda shares: {**shares, "nobody": CIPHERTEXT})
    check_client_is_left_out(name, "share", lambda shares: {**shares, MALICIOUS: CIPHERTEXT})
    for invalid in (b"share", CIPHERTEXT.float(), CIPHERTEXT.reshape(2, -1)):
        check_client_is_left_out(name, "share", lambda shares, invalid=invalid: {**shares, "client-000": invalid})


@with_every_protocol
def test_a_masked_vector_that_does_not_fit_its_layout_is_left_out(name: str) -> None:
    for forge in (
        lambda vector: replace(vector, words=vector.words[:-1]),
        lambda vector: replace(vector, words=torch.cat([vector.words, vector.words])),
        lambda vector: replace(vector, words=vector.words.long()),
        lambda vector: replace(vector, words=vector.words.reshape(1, -1)),
        lambda vector: replace(vector, is_double=True),
        lambda vector: replace(vector, layout=Params.from_tensors({"y": torch.zeros(7)}).layout),
    ):
        check_client_is_left_out(name, "upload", forge)


def test_words_that_are_not_field_elements_are_left_out() -> None:
    check_client_is_left_out(
        "light_secagg", "upload", lambda vector: replace(vector, words=torch.full_like(vector.words, -1))
    )


def test_an_answer_of_the_wrong_length_is_left_out() -> None:
    check_client_is_left_out("light_secagg", "reveal", lambda answer: answer[:-1])


@with_every_protocol
def test_a_false_share_in_the_last_stage_does_not_give_a_false_sum(name: str) -> None:
    """A wrong mask leaves words that look valid. The impossible weights reveal it."""

    def forge(answer: Any) -> Any:
        if isinstance(answer, torch.Tensor):
            return answer ^ 0x2AAAAAAA
        return {owner: bytes(len(share)) for owner, share in answer.items()}

    with pytest.raises(RunError, match="weights that its clients cannot have"):
        run_forged_sum(THREE_OF_FIVE[name], "reveal", forge)


@pytest.mark.parametrize("name", [name for name in SECURE if name != "none"])
def test_with_on_error_fail_the_run_ends_and_names_the_client(name: str) -> None:
    with pytest.raises(RunError, match=rf"{MALICIOUS} sent an invalid message in a secure sum"):
        run_forged_sum(SECURE[name](), "share", lambda _: None, WaitPolicy(on_error="fail"))
