"""MPI, for one cluster: rank 0 is the server, every other rank plays its share of the clients."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from motet.core.errors import ConfigError, RunError, WireError
from motet.core.script import ClientId
from motet.transport.framing import OutgoingMessage
from motet.transport.requests import Reply, Request
from motet.wire import deserialize

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:  # pragma: no cover - RuntimeError: mpi4py without an MPI library
    raise ConfigError(f"transport.type=mpi needs mpi4py and an MPI ({error}); run: pip install 'motet[mpi]'") from None

LARGEST = 2**30  # bytes of one MPI message; counts are 32-bit in many an MPI
_SIZES, _PART = 1, 2


class MpiEndpoint:
    """A process's place in the cluster. Tensors go from where they lie, and come to where they stay."""

    def __init__(self, comm: Any = None) -> None:
        self.comm = MPI.COMM_WORLD if comm is None else comm
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        self.under_way: list[tuple[list[Any], Any]] = []

    def push(self, rank: int, parcel: OutgoingMessage) -> None:
        """Send without waiting; what is sent is held until it has gone."""
        self.under_way = [(notes, held) for notes, held in self.under_way if not MPI.Request.Testall(notes)]
        parts = [part[at : at + LARGEST] for part in parcel.parts for at in range(0, len(part), LARGEST)]
        sizes = np.array([len(part) for part in parts], np.int64)
        notes = [self.comm.Isend([sizes, MPI.INT64_T], rank, _SIZES)]
        notes += [self.comm.Isend([part, MPI.BYTE], rank, _PART) for part in parts]
        self.under_way.append((notes, (sizes, parts)))

    def take(self, timeout: float | None) -> tuple[int, Any] | None:
        """The next value and who sent it. MPI's own waiting burns a core that training needs, so this looks and sleeps."""
        until = None if timeout is None else time.monotonic() + timeout
        pause, status = 0.0002, MPI.Status()
        while not self.comm.Iprobe(MPI.ANY_SOURCE, _SIZES, status):
            if until is not None and time.monotonic() >= until:
                return None
            time.sleep(pause)
            pause = min(0.01, 1.5 * pause)
        sender = status.Get_source()
        sizes = np.empty(status.Get_count(MPI.INT64_T), np.int64)
        self.comm.Recv([sizes, MPI.INT64_T], sender, _SIZES)
        buffer, at = np.empty(int(sizes.sum()), np.uint8), 0
        for size in map(int, sizes):
            self.comm.Recv([buffer[at : at + size], MPI.BYTE], sender, _PART)
            at += size
        return sender, deserialize(buffer.data)

    def flush(self) -> None:
        for notes, _ in self.under_way:
            MPI.Request.Waitall(notes)
        self.under_way.clear()


class MpiTransport:
    """The server's transport: each client has one rank, where its memory is."""

    def __init__(self, port: MpiEndpoint, rank_of: Callable[[ClientId], int]) -> None:
        self.port, self.rank_of = port, rank_of

    def send(self, request: Request) -> None:
        self.port.push(self.rank_of(request.client), OutgoingMessage.of(request))

    def receive(self, timeout: float) -> Reply | None:
        try:
            found = self.port.take(timeout)
        except WireError as error:
            raise RunError(f"a rank sent what is no message: {error} Is the same Motet on all nodes?") from None
        if found is None:
            return None
        sender, value = found
        if not isinstance(value, Reply):
            raise RunError(f"rank {sender} sent a {type(value).__name__}; expected a reply.")
        return value

    def close(self) -> None: ...
