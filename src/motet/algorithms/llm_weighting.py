"""LLMWC: weights from a language model, requested from any OpenAI-compatible chat endpoint.

The prompt has each client's training loss, F1, mean entropy on the public data and number of examples. Clients are
numbered, not named, and no text or logit is sent. The reply must contain one non-negative number per client. After
any other reply and after any failure, ENWC is used and a note says so.

The URL and the key are read from OPENAI_BASE_URL and OPENAI_API_KEY, so that no recipe or log contains them.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from motet.algorithms.distillation_weights import Stats, TrainingStats, WeightingRule
from motet.core.errors import ConfigError
from motet.core.script import Note

if TYPE_CHECKING:
    import httpx2  # loaded on first use: few runs ask a language model

DEFAULT_URL = "https://api.openai.com/v1"
INSTRUCTION = (
    "You weigh the clients of a federated learning round. Each client trained a text classifier on its own data; their "
    "predictions on shared texts will be averaged with your weights. Give more weight to clients whose predictions are "
    "likely to be right on all domains. Answer with one non-negative number for each client, in order, separated by "
    "commas, and nothing else."
)
NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
NUMBER_LIST = re.compile(rf"\s*\[?\s*({NUMBER}(?:\s*,\s*{NUMBER})*)\s*\]?\s*")
MAX_REPLY_BYTES = 2**20
MAX_PAUSE = 60.0  # seconds between two attempts


@dataclass(frozen=True)
class LLMConfig:
    """The language model, and how long to wait for it. The model `offline` sends no request and uses a fixed rule."""

    model: str = "offline"
    timeout: float = 60.0  # seconds for one complete reply
    retries: int = 2  # after a temporary failure: no connection, no reply in time, status 429 or 5xx
    pause: float = 1.0  # seconds before the first retry, doubled each time
    price_in: float = 0.0  # per million tokens, to report the cost
    price_out: float = 0.0

    def __post_init__(self) -> None:
        if not self.timeout > 0 or self.retries < 0 or self.pause < 0:
            raise ConfigError(
                f"algorithm.llm: timeout is {self.timeout}, retries {self.retries}, pause {self.pause}; "
                "expected timeout > 0, retries >= 0 and pause >= 0."
            )


@dataclass(frozen=True)
class LLMReply:
    text: str
    tokens_in: int
    tokens_out: int


class UnusableReplyError(Exception):
    """There is no usable reply. The message says why; the round continues without the language model."""


class TemporaryFailureError(Exception):
    """The request failed and may succeed if it is sent again."""


@dataclass(frozen=True)
class LLMWeights:
    """Weights from a language model, or from `fallback` if there is no usable reply."""

    config: LLMConfig
    fallback: WeightingRule
    required_stats: tuple[str, ...] = ("f1",)

    def check(self) -> None:
        if self.config.model != "offline":
            read_endpoint(self.config.model)

    def weights(self, stats: Stats) -> tuple[Tensor, Note]:
        clients, model = list(stats.values()), self.config.model
        if model == "offline":
            return offline_weights(clients), Note(
                "LLMWC offline (algorithm.llm.model=offline): weights from a fixed rule."
            )
        start, reply, reason = time.monotonic(), LLMReply("", tokens_in=0, tokens_out=0), ""
        try:
            reply = send_prompt(self.config, build_prompt(clients))
            weights = parse_weights(reply.text, len(clients))
        except UnusableReplyError as error:
            weights, reason = self.fallback.weights(stats)[0], str(error)
        text = f"{model} returned no usable weights: {reason}; ENWC is used" if reason else f"weights from {model}"
        return weights, self._note(text, reply, seconds=time.monotonic() - start, used=not reason)

    def _note(self, text: str, reply: LLMReply, seconds: float, used: bool) -> Note:
        cost = (reply.tokens_in * self.config.price_in + reply.tokens_out * self.config.price_out) / 1e6
        usage = f"{reply.tokens_in} tokens in, {reply.tokens_out} out, {seconds:.1f} s"
        if cost:
            usage += f", cost {cost:.4f}"
        values = {
            "llm_used": float(used),
            "llm_seconds": seconds,
            "llm_cost": cost,
            "llm_tokens_in": float(reply.tokens_in),
            "llm_tokens_out": float(reply.tokens_out),
        }
        return Note(f"{text} ({usage}).", kind="llm", values=values)


def offline_weights(clients: Sequence[TrainingStats]) -> Tensor:
    """Return the weights of a fixed rule: larger for a higher F1 and for a smaller loss."""
    weights = [((stats.f1 or 0.0) + 0.05) * math.exp(-stats.loss) for stats in clients]
    return torch.tensor(weights, dtype=torch.float64)


def build_prompt(clients: Sequence[TrainingStats]) -> str:
    """Write one line of statistics per client."""
    lines = [
        f"client {i}: training loss {stats.loss:.4f}, F1 {'unknown' if stats.f1 is None else f'{stats.f1:.4f}'}, "
        f"mean prediction entropy {stats.entropy:.4f} nats, training examples {stats.num_examples}"
        for i, stats in enumerate(clients, 1)
    ]
    return "\n".join([f"There are {len(clients)} clients.", *lines, f"Give {len(clients)} weights."])


def parse_weights(text: str, count: int) -> Tensor:
    """Parse exactly `count` finite, non-negative numbers that are not all zero."""
    match = NUMBER_LIST.fullmatch(text)
    if match is None:
        raise UnusableReplyError(f"the reply ({hide_key(text)[:60]!r}) is not a comma-separated list of numbers")
    numbers = [float(piece) for piece in match[1].split(",")]
    if len(numbers) != count:
        raise UnusableReplyError(f"the reply has {len(numbers)} numbers for {count} clients")
    if not all(math.isfinite(n) and n >= 0 for n in numbers) or not 0 < sum(numbers) < math.inf:
        raise UnusableReplyError(f"the numbers ({text.strip()[:60]}) must be finite, non-negative and not all zero")
    return torch.tensor(numbers, dtype=torch.float64)


def send_prompt(config: LLMConfig, prompt: str) -> LLMReply:
    """Send the prompt, and retry after temporary failures."""
    attempt = 0
    while True:
        try:
            return _send_once(config, prompt)
        except TemporaryFailureError as failure:
            if attempt == config.retries:
                raise UnusableReplyError(f"{failure} ({attempt + 1} attempts)") from None
        time.sleep(min(config.pause * 2**attempt, MAX_PAUSE))
        attempt += 1


def _send_once(config: LLMConfig, prompt: str) -> LLMReply:
    import httpx2

    url, key = read_endpoint(config.model)
    messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": prompt}]
    request = httpx2.Request(
        "POST",
        url.copy_with(path=f"{url.path.rstrip('/')}/chat/completions"),
        headers={"Accept-Encoding": "identity", **({"Authorization": f"Bearer {key}"} if key else {})},
        json={"model": config.model, "messages": messages, "temperature": 0},
    )
    try:
        # asyncio.run needs a thread without an event loop. The main thread of a notebook has one.
        with ThreadPoolExecutor(max_workers=1) as pool:
            body = pool.submit(asyncio.run, _post(request, config.timeout)).result()
    except TimeoutError:
        raise TemporaryFailureError(f"no reply within {config.timeout:g} s") from None
    except (httpx2.HTTPError, OSError) as error:  # its message is not shown: it may contain the key
        raise TemporaryFailureError(f"no connection ({type(error).__name__})") from None
    return _parse_completion(body)


async def _post(request: httpx2.Request, timeout: float) -> bytes:
    """Return the body of the response, or raise TimeoutError if it is not complete within `timeout` seconds.

    The timeouts of httpx2 apply to single reads, so a server that sends one byte at a time would never exceed them.
    Redirects are not followed, because they could carry the key to another host.
    """
    import httpx2

    async with asyncio.timeout(timeout) as deadline:
        async with httpx2.AsyncClient(timeout=None, trust_env=False, follow_redirects=False) as client:
            response = await client.send(request, stream=True)
            _check_status(response.status_code)
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_REPLY_BYTES:
                    raise UnusableReplyError(f"the reply is longer than {MAX_REPLY_BYTES} bytes")
    if asyncio.get_running_loop().time() > (deadline.when() or math.inf):
        raise TimeoutError
    return bytes(body)


def _check_status(status: int) -> None:
    if status == 429 or status >= 500:
        raise TemporaryFailureError(f"status {status}")
    if status != 200:  # the body is not shown: some services repeat the key in it
        raise UnusableReplyError(f"status {status}")


def read_endpoint(model: str) -> tuple[httpx2.URL, str]:
    """Return the URL and the key from the environment. No error message contains the key."""
    import httpx2

    base, key = os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL, os.environ.get("OPENAI_API_KEY", "").strip()
    if base == DEFAULT_URL and not key:
        raise ConfigError(
            f"algorithm.llm.model is {model}, but neither OPENAI_API_KEY nor OPENAI_BASE_URL is set; "
            "set them where the server runs, or use llm.model=offline."
        )
    if not _is_printable_ascii(key):
        raise ConfigError("OPENAI_API_KEY has characters that no key has (spaces, non-ASCII letters); set it again.")
    try:
        url = httpx2.URL(base)
    except httpx2.InvalidURL:
        url = httpx2.URL("")
    is_valid = url.scheme in ("http", "https") and url.host and (url.port or 0) < 2**16 and _is_printable_ascii(base)
    if not is_valid:
        raise ConfigError("OPENAI_BASE_URL is not a URL; expected e.g. http://localhost:8000/v1.")
    return url.copy_with(userinfo=b"", query=None, fragment=None), key


def _is_printable_ascii(text: str) -> bool:
    return all("!" <= letter <= "~" for letter in text)


def hide_key(text: str) -> str:
    """Remove the key from a reply, because some services repeat it."""
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    return text.replace(key, "…") if key else text


def _parse_completion(body: bytes) -> LLMReply:
    try:
        completion: Any = json.loads(body)
        text = completion["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise UnusableReplyError("the reply is not a chat completion") from None
    if not isinstance(text, str):
        raise UnusableReplyError("the reply has no text")
    usage = completion.get("usage") if isinstance(completion.get("usage"), dict) else {}
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    tokens_in, tokens_out = (n if type(n) is int and 0 <= n < 10**9 else 0 for n in counts)
    return LLMReply(text, tokens_in, tokens_out)
