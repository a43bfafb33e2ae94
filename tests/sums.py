"""A federation without training: every client has a fixed vector, to test how vectors are summed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.script import ClientId, Program, Script, rewrite_sums, run_script, to_all, total, work
from motet.core.weighted import Weighted
from motet.learning.executors.serial_executor import SerialExecutor
from motet.transport.client_runtime import ClientRuntime
from motet.transport.client_state import ClientStates
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Reply, Request
from motet.transport.wait_policy import WaitPolicy

TOLERANT = WaitPolicy(quorum=0.01, on_error="drop")
BEHIND_SECURE_SUM = {"vectors": frozenset({"secure"})}


@dataclass(frozen=True)
class VectorProgram(Program):
    """Sums the clients' weighted vectors."""

    vectors: Mapping[ClientId, Weighted]
    name: str = "vectors"

    def round(self) -> Script[Weighted]:
        return (yield from total(self.send_vector, to_all(self.vectors, None)))

    @work(reveals="sum")
    def send_vector(self, ctx: Any, payload: Any, client_state: None) -> tuple[Weighted, None]:
        return self.vectors[ctx.client], None

    @work(reveals="each")
    def send_text(self, ctx: Any, payload: Any, client_state: None) -> tuple[str, None]:
        return "anything", None


@dataclass(frozen=True)
class EmptyContext:
    """A client context without data."""

    client: ClientId
    round: int
    seed: Seed
    invoke: Callable[[str, Any], Any]


@dataclass
class LossyTransport:
    """An in-process transport that loses the replies of some clients in some stages, and records the others."""

    runtime: ClientRuntime
    is_lost: Callable[[ClientId, str], bool] = lambda client, stage: False
    replies: list[tuple[str, Reply]] = field(default_factory=list)  # with their stage
    queued: list[Request] = field(default_factory=list)

    def send(self, request: Request) -> None:
        self.queued.append(request)

    def receive(self, timeout: float) -> Reply | None:
        while self.queued:
            request = self.queued.pop(0)
            stage = request.address.partition(".")[2]
            reply = next(self.runtime.answer_requests(iter([request])))
            if not self.is_lost(request.client, stage):
                self.replies.append((stage, reply))
                return reply
        return None

    def close(self) -> None: ...


def make_vectors(count: int, size: int = 7, seed: int = 0) -> dict[ClientId, Weighted]:
    generator = torch.Generator().manual_seed(seed)
    clients = [f"client-{k:03d}" for k in range(count)]
    return {
        client: Weighted(Params.from_tensors({"x": torch.randn(size, generator=generator).clamp(-4, 4)}), float(3 + k))
        for k, client in enumerate(clients)
    }


def make_runtime(programs: list[Any], **options: Any) -> ClientRuntime:
    def make_context(client: ClientId, round: int, address: str, invoke: Any, read_state: Any) -> EmptyContext:
        return EmptyContext(client, round, Seed(5).derive(client, round, address), invoke)

    return ClientRuntime(programs, make_context, SerialExecutor(torch.device("cpu")), ClientStates(), **options)


def make_secure_transport(
    vectors: Mapping[ClientId, Weighted], secure: Any, **options: Any
) -> tuple[VectorProgram, LossyTransport]:
    """Return a program over these vectors, and a transport to clients that reveal them only in a secure sum."""
    program = VectorProgram(vectors)
    runtime = make_runtime([program, secure], required_wrappers=BEHIND_SECURE_SUM)
    return program, LossyTransport(runtime, **options)


def run_sum(script: Script[Weighted], mailbox: Mailbox) -> Weighted:
    return run_script(script, mailbox.run_exchange, lambda job: None)


def secure_mean(vectors: Mapping[ClientId, Weighted], secure: Any, **options: Any) -> tuple[Weighted, LossyTransport]:
    """Return the mean as the server reads it, and the transport that it came over."""
    program, transport = make_secure_transport(vectors, secure, **options)
    return run_sum(rewrite_sums(secure, program.round()), Mailbox(transport, TOLERANT)), transport


def exact_mean(vectors: Mapping[ClientId, Weighted], clients: Iterable[ClientId]) -> tuple[torch.Tensor, float]:
    terms = [vectors[client] for client in clients]
    weight = sum(term.weight for term in terms)
    total_vector = torch.stack([term.value.flat.double() * term.weight for term in terms]).sum(0)
    return total_vector / weight, weight
