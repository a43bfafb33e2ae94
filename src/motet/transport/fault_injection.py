"""A transport that loses, duplicates, reorders and delays messages on purpose, reproducibly."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.transport.requests import Reply, Request, Transport


@dataclass(frozen=True)
class Faults:
    """The shares of messages that are affected. `delay` is the longest delay of a reply, in seconds."""

    loss: float = 0.0
    duplicates: float = 0.0
    shuffled: float = 0.0
    delay: float = 0.0

    def __post_init__(self) -> None:
        for name in ("loss", "duplicates", "shuffled"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise ConfigError(f"transport.faults.{name} is {share}; expected a share of the messages, from 0 to 1.")
        if self.delay < 0:
            raise ConfigError(f"transport.faults.delay is {self.delay}; expected a number of seconds of at least 0.")

    @property
    def is_enabled(self) -> bool:
        return self != Faults()


class FaultyTransport:
    """Wraps a transport.

    The fate of a message depends only on the seed and its ID, so a run can be repeated and resumed.
    """

    def __init__(self, transport: Transport, faults: Faults, seed: Seed) -> None:
        self.transport, self.faults, self.seed = transport, faults, seed.derive("faults")
        self.held_back: deque[Reply] = deque()  # delivered after the next reply
        self.ready: deque[Reply] = deque()

    def send(self, request: Request) -> None:
        if self._draw("request", request.id) < self.faults.loss:
            return
        self.transport.send(request)

    def receive(self, timeout: float) -> Reply | None:
        while not self.ready:
            reply = self.transport.receive(timeout)
            if reply is None:
                self._release_held_back()
                return self.ready.popleft() if self.ready else None
            self._deliver(reply)
        return self.ready.popleft()

    def close(self) -> None:
        self.transport.close()

    def _deliver(self, reply: Reply) -> None:
        if self.faults.delay:
            time.sleep(self._draw("delay", reply.id) * self.faults.delay)
        if self._draw("reply", reply.id) < self.faults.loss:
            return
        copies = 2 if self._draw("copy", reply.id) < self.faults.duplicates else 1
        if self._draw("order", reply.id) < self.faults.shuffled:
            self.held_back.extend([reply] * copies)
            return
        self.ready.extend([reply] * copies)
        self._release_held_back()

    def _release_held_back(self) -> None:
        self.ready.extend(self.held_back)
        self.held_back.clear()

    def _draw(self, purpose: str, message_id: int) -> float:
        return float(self.seed.derive(purpose, message_id).numpy().random())
