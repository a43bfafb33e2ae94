"""A transport that loses, repeats, shuffles and delays: what real ones do now and then, on purpose and repeatably."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.transport.requests import Reply, Request, Transport


@dataclass(frozen=True)
class Faults:
    """Shares of the messages, each way; `delay` is the longest, in seconds."""

    loss: float = 0.0
    duplicates: float = 0.0
    shuffled: float = 0.0
    delay: float = 0.0

    def __post_init__(self) -> None:
        for name in ("loss", "duplicates", "shuffled"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ConfigError(f"transport.faults.{name} is {value}; it is a share of the messages, from 0 to 1.")
        if self.delay < 0:
            raise ConfigError(f"transport.faults.delay is {self.delay}; it is a number of seconds.")

    @property
    def any(self) -> bool:
        return self != Faults()


class FaultyTransport:
    """What befalls a message follows from the seed and its number alone, so that a run with faults repeats and resumes."""

    def __init__(self, transport: Transport, faults: Faults, seed: Seed) -> None:
        self.transport, self.faults, self.seed = transport, faults, seed.derive("faults")
        self.held: deque[Reply] = deque()  # their turn comes when another reply has overtaken them
        self.due: deque[Reply] = deque()

    def send(self, request: Request) -> None:
        if self._draw("request", request.id) < self.faults.loss:
            return
        self.transport.send(request)

    def receive(self, timeout: float) -> Reply | None:
        while not self.due:
            reply = self.transport.receive(timeout)
            if reply is None:
                self.due.extend(self.held)
                self.held.clear()
                return self.due.popleft() if self.due else None
            self._befall(reply)
        return self.due.popleft()

    def close(self) -> None:
        self.transport.close()

    def _befall(self, reply: Reply) -> None:
        if self.faults.delay:
            time.sleep(self._draw("delay", reply.id) * self.faults.delay)
        if self._draw("reply", reply.id) < self.faults.loss:
            return
        copies = 2 if self._draw("copy", reply.id) < self.faults.duplicates else 1
        if self._draw("order", reply.id) < self.faults.shuffled:
            self.held.extend([reply] * copies)
            return
        self.due.extend([reply] * copies)
        self.due.extend(self.held)
        self.held.clear()

    def _draw(self, purpose: str, number: int) -> float:
        return float(self.seed.derive(purpose, number).numpy().random())
