"""A federation with nothing to learn: clients that hold a vector each, for tests of how vectors are summed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.script import ClientId, Script, rewrite_sums, run_script, to_all, total, work
from motet.core.weighted import Weighted
from motet.learning.executors.serial_executor import SerialExecutor
from motet.transport.client_runtime import ClientRuntime
from motet.transport.client_state import ClientStates
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Reply, Request
from motet.transport.wait_policy import WaitPolicy

PATIENT = WaitPolicy(quorum=0.01, on_error="drop")


@dataclass(frozen=True)
class Plainly:
    """Everybody's vector, weighted."""

    vectors: Mapping[ClientId, Weighted]
    name: str = "plainly"

    def round(self) -> Script[Weighted]:
        return (yield from total(self.give, to_all(self.vectors, None)))

    @work(reveals="sum")
    def give(self, ctx: Any, ask: Any, memory: None) -> tuple[Weighted, None]:
        return self.vectors[ctx.client], None

    @work(reveals="each")
    def tell(self, ctx: Any, ask: Any, memory: None) -> tuple[str, None]:
        return "anything", None


@dataclass(frozen=True)
class Where:
    """A context with no data in it."""

    client: ClientId
    round: int
    seed: Seed
    invoke: Callable[[str, Any], Any]


@dataclass
class Line:
    """In process; requests to some clients never arrive, or their replies are lost, stage by stage."""

    host: ClientRuntime
    lost: Callable[[ClientId, str], bool] = lambda client, stage: False
    deaf: Callable[[ClientId, str], bool] = lambda client, stage: False
    replies: list[tuple[str, Reply]] = field(default_factory=list)
    waiting: list[Request] = field(default_factory=list)

    def send(self, request: Request) -> None:
        self.waiting.append(request)

    def receive(self, timeout: float) -> Reply | None:
        while self.waiting:
            request = self.waiting.pop(0)
            stage = request.address.partition(".")[2]
            if self.deaf(request.client, stage):
                continue
            reply = next(self.host.replies(iter([request])))
            if not self.lost(request.client, stage):
                self.replies.append((stage, reply))
                return reply
        return None

    def close(self) -> None: ...


def vectors(count: int, size: int = 7, seed: int = 0) -> dict[ClientId, Weighted]:
    made = torch.Generator().manual_seed(seed)
    names = [f"client-{k:03d}" for k in range(count)]
    return {
        n: Weighted(Params.from_tensors({"x": torch.randn(size, generator=made).clamp(-4, 4)}), float(3 + k))
        for k, n in enumerate(names)
    }


def host_for(programs: list[Any], **options: Any) -> ClientRuntime:
    def context_of(client: ClientId, round: int, address: str, perform: Any, recall: Any) -> Where:
        return Where(client, round, Seed(5).derive(client, round, address), perform)

    return ClientRuntime(programs, context_of, SerialExecutor(torch.device("cpu")), ClientStates(), **options)


def summed(
    given: Mapping[ClientId, Weighted], secure: Any, kept: list[Line] | None = None, **line: Any
) -> tuple[Weighted, Line]:
    """The sum of the vectors as a server reads it, and the line over which it was made (also `kept`, should it fail)."""
    program = Plainly(given)
    route = Line(host_for([program, secure], behind={"plainly": frozenset({"secure"})}), **line)
    if kept is not None:
        kept.append(route)
    mailbox = Mailbox(route, PATIENT)
    return run_script(rewrite_sums(secure, program.round()), mailbox.ask, lambda job: None), route


def mean(
    given: Mapping[ClientId, Weighted], members: Iterator[ClientId] | list[ClientId] | set[ClientId]
) -> tuple[torch.Tensor, float]:
    chosen = [given[c] for c in members]
    weight = sum(w.weight for w in chosen)
    flat = torch.stack([w.value.flat.double() * w.weight for w in chosen]).sum(0)
    return flat / weight, weight
