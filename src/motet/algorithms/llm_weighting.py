"""LLMWC: weights from a language model, asked over any OpenAI-compatible chat endpoint.

It is told of each client the training loss, F1, the mean entropy of its opinions and its number of examples, by number and not
by name: never a text, never a logit. The answer must be as many non-negative numbers as there are clients. Anything else, and
any failure, falls back to ENWC, and that is said. The address and the key come from OPENAI_BASE_URL and OPENAI_API_KEY, so that
no recipe and no record holds them.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

import torch
from torch import Tensor

from motet.algorithms.distillation_weights import Account, Importance
from motet.core.errors import ConfigError
from motet.core.script import ClientId, Note

HOME = "https://api.openai.com/v1"
INSTRUCTION = (
    "You weigh the clients of a federated learning round. Each client trained a text classifier on its own data; their "
    "predictions on shared texts will be averaged with your weights. Give more weight to clients whose predictions are likely "
    "to be right on all domains. Answer with one non-negative number for each client, in order, separated by commas, and "
    "nothing else."
)
NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
ANSWER = re.compile(rf"\s*\[?\s*({NUMBER}(?:\s*,\s*{NUMBER})*)\s*\]?\s*")
LONGEST = 2**20  # bytes of an answer


@dataclass(frozen=True)
class Chat:
    """Which language model is asked, and how patiently. `offline` asks none: a rule stands in for it."""

    model: str = "offline"
    timeout: float = 60.0  # seconds for one answer
    retries: int = 2  # after a failure that may pass: no connection, no answer in time, status 429 or 5xx
    pause: float = 1.0  # seconds before the first of them, doubled each time
    price_in: float = 0.0  # for a million tokens, to show what it costs
    price_out: float = 0.0

    def __post_init__(self) -> None:
        if not self.timeout > 0 or self.retries < 0 or self.pause < 0:
            raise ConfigError(
                f"algorithm.llm: timeout is {self.timeout}, retries {self.retries}, pause {self.pause}; "
                "expected seconds above 0, and numbers of at least 0."
            )


@dataclass(frozen=True)
class Said:
    """A language model's answer, and what it cost."""

    text: str
    tokens_in: int
    tokens_out: int


class Unusable(Exception):  # noqa: N818 - no error: the round goes on without the language model
    """Why there is no answer that can be used."""


@dataclass(frozen=True)
class Oracle:
    """Weights from a language model, or from `otherwise` where it gives none that can be used."""

    chat: Chat
    otherwise: Importance
    asks: tuple[str, ...] = ("f1",)

    def ready(self) -> None:
        if self.chat.model != "offline":
            service(self.chat.model)

    def weights(self, accounts: Mapping[ClientId, Account]) -> tuple[Tensor, Note]:
        told = list(accounts.values())
        if self.chat.model == "offline":
            return by_rule(told), Note("LLMWC without a language model (algorithm.llm.model=offline): weights by rule.")
        began, said, why = time.monotonic(), Said("", 0, 0), ""
        try:
            said = asked(self.chat, prompt(told))
            weights = parsed(said.text, len(told))
        except Unusable as unusable:
            weights, why = self.otherwise.weights(accounts)[0], str(unusable)
        cost = (said.tokens_in * self.chat.price_in + said.tokens_out * self.chat.price_out) / 1e6
        took = time.monotonic() - began
        priced = f", cost {cost:.4f}" if cost else ""
        bill = f"{said.tokens_in} tokens in, {said.tokens_out} out, {took:.1f} s{priced}"
        text = f"{self.chat.model} gave no weights: {why}; ENWC's are used" if why else f"weights by {self.chat.model}"
        values = {"llm_used": float(not why), "llm_seconds": took, "llm_cost": cost}
        values |= {"llm_tokens_in": float(said.tokens_in), "llm_tokens_out": float(said.tokens_out)}
        return weights, Note(f"{text} ({bill}).", kind="llm", values=values)


def by_rule(told: Sequence[Account]) -> Tensor:
    """What a sensible reader of the same numbers would say: a good F1 and a small loss count."""
    found = [((account.f1 or 0.0) + 0.05) * math.exp(-account.loss) for account in told]
    return torch.tensor(found, dtype=torch.float64)


def prompt(told: Sequence[Account]) -> str:
    """Summary statistics, a line a client."""
    lines = [
        f"client {i}: training loss {a.loss:.4f}, F1 {'unknown' if a.f1 is None else f'{a.f1:.4f}'}, "
        f"mean prediction entropy {a.entropy:.4f} nats, training examples {a.size}"
        for i, a in enumerate(told, 1)
    ]
    return "\n".join([f"There are {len(told)} clients.", *lines, f"Give {len(told)} weights."])


def parsed(text: str, count: int) -> Tensor:
    """Exactly so many non-negative finite numbers, not all of them zero."""
    match = ANSWER.fullmatch(text)
    if match is None:
        raise Unusable(f"its answer ({hidden(text)[:60]!r}) is not numbers separated by commas")
    numbers = [float(piece) for piece in match[1].split(",")]
    if len(numbers) != count:
        raise Unusable(f"it gave {len(numbers)} numbers for {count} clients")
    if not all(math.isfinite(n) and n >= 0 for n in numbers) or not 0 < sum(numbers) < math.inf:
        raise Unusable(f"its numbers ({text.strip()[:60]}) are not finite, not negative and more than zero in all")
    return torch.tensor(numbers, dtype=torch.float64)


def asked(chat: Chat, question: str) -> Said:
    """The answer, after as many attempts as are allowed."""
    for attempt in range(chat.retries + 1):
        try:
            return _answer(chat, question)
        except _Passing as passing:
            if attempt == chat.retries:
                raise Unusable(f"{passing} ({attempt + 1} attempts)") from None
            time.sleep(min(chat.pause * 2**attempt, 60.0))
    raise Unusable("it was not asked")


class _Passing(Exception):  # noqa: N818 - a failure that may pass
    pass


def _answer(chat: Chat, question: str) -> Said:
    messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": question}]
    body = json.dumps({"model": chat.model, "messages": messages, "temperature": 0})
    where, key = service(chat.model)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    connection = kind(
        where.hostname or "", where.port, timeout=chat.timeout
    )  # no redirection, which could carry the key off
    end = threading.Timer(chat.timeout, _cut, (connection,))  # a socket's own time-out begins anew with every byte
    end.start()
    try:
        connection.request("POST", f"{where.path.rstrip('/')}/chat/completions", body, headers)
        answer = _whole(connection.getresponse())
        if end.finished.is_set():  # what was cut off looks like an end
            raise TimeoutError
        return _read(answer)
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, TimeoutError) or end.finished.is_set():
            raise _Passing(f"no answer within {chat.timeout:g} s") from None
        raise _Passing(f"no connection ({type(error).__name__})") from None
    finally:
        end.cancel()
        connection.close()


def _cut(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def service(model: str) -> tuple[SplitResult, str]:
    """The address and the key, as the environment has them; nothing that is said of them repeats the key."""
    base, key = os.environ.get("OPENAI_BASE_URL") or HOME, os.environ.get("OPENAI_API_KEY", "").strip()
    if base == HOME and not key:
        raise ConfigError(
            f"algorithm.llm.model is {model}, but neither OPENAI_API_KEY nor OPENAI_BASE_URL is set; set them where the "
            "server runs, or use llm.model=offline."
        )
    if not all("!" <= letter <= "~" for letter in key):
        raise ConfigError("OPENAI_API_KEY has characters that no key has (blanks, letters beyond ASCII); set it anew.")
    where = urlsplit(base)
    try:
        usable = where.scheme in ("http", "https") and bool(where.hostname) and (where.port or 1) > 0
    except ValueError:  # of a port that is none
        usable = False
    if not usable or not all("!" <= letter <= "~" for letter in base):
        raise ConfigError("OPENAI_BASE_URL is no address; expected one such as http://localhost:8000/v1.")
    return where, key


def hidden(text: str) -> str:
    """The text without the key, which some services repeat."""
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    return text.replace(key, "…") if key else text


def _whole(response: http.client.HTTPResponse) -> bytes:
    if response.status == 429 or response.status >= 500:
        raise _Passing(f"status {response.status}")
    if response.status != 200:  # the body is not shown: some services repeat the key in it
        raise Unusable(f"status {response.status}")
    found = bytearray()
    while piece := response.read1(2**16):
        found += piece
        if len(found) > LONGEST:
            raise Unusable(f"its answer is longer than {LONGEST} bytes")
    return bytes(found)


def _read(body: bytes) -> Said:
    try:
        whole: Any = json.loads(body)
        text = whole["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise Unusable("its answer is no chat completion") from None
    if not isinstance(text, str):
        raise Unusable("its answer has no text")
    usage = whole.get("usage") if isinstance(whole.get("usage"), dict) else {}
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    return Said(text, *(n if type(n) is int and 0 <= n < 10**9 else 0 for n in counts))
