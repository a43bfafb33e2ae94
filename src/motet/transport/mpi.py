"""The MPI transport, for one cluster. Rank 0 is the server; every other rank runs its share of the clients."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from motet.core.errors import ConfigError, RunError, WireError
from motet.core.install_hint import install_command
from motet.core.script import ClientId
from motet.transport.framing import OutgoingMessage
from motet.transport.requests import Reply, Request
from motet.wire import deserialize

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:  # pragma: no cover - RuntimeError: mpi4py without an MPI library
    raise ConfigError(
        f"transport.type=mpi needs the package mpi4py and an MPI library ({error}). Run: {install_command('mpi')}"
    ) from None

MAX_PART_BYTES = 2**30  # many MPI libraries have 32-bit counts
MAX_MESSAGE_BYTES = 2**40
_SIZES_TAG, _PART_TAG = 1, 2


class MpiEndpoint:
    """One process of the cluster. Tensors are sent without a copy, and received into one buffer per message."""

    def __init__(self, comm: Any = None) -> None:
        self.comm = MPI.COMM_WORLD if comm is None else comm
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        self.in_flight: list[tuple[list[Any], Any]] = []  # pending sends, and the buffers they read from

    def send(self, rank: int, message: OutgoingMessage) -> None:
        """Start to send and return at once. The buffers are kept until they have been sent."""
        self.in_flight = [(sends, buffers) for sends, buffers in self.in_flight if not MPI.Request.Testall(sends)]
        parts = [
            part[start : start + MAX_PART_BYTES]
            for part in message.parts
            for start in range(0, len(part), MAX_PART_BYTES)
        ]
        sizes = np.array([len(part) for part in parts], np.int64)
        sends = [self.comm.Isend([sizes, MPI.INT64_T], rank, _SIZES_TAG)]
        sends += [self.comm.Isend([part, MPI.BYTE], rank, _PART_TAG) for part in parts]
        self.in_flight.append((sends, (sizes, parts)))

    def receive(self, timeout: float | None) -> tuple[int, Any] | None:
        """Return the sender and the next value, or None if none arrives in time.

        Polls and sleeps, because MPI's blocking receive uses a full core that training needs.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause, status = 0.0002, MPI.Status()
        while not self.comm.Iprobe(MPI.ANY_SOURCE, _SIZES_TAG, status):
            if deadline is not None and time.monotonic() >= deadline:
                return None
            time.sleep(pause)
            pause = min(0.01, 1.5 * pause)
        sender = status.Get_source()
        sizes = np.empty(status.Get_count(MPI.INT64_T), np.int64)
        self.comm.Recv([sizes, MPI.INT64_T], sender, _SIZES_TAG)
        parts = sizes.tolist()  # Python's integers do not overflow in a sum
        if not all(0 <= size <= MAX_PART_BYTES for size in parts) or sum(parts) > MAX_MESSAGE_BYTES:
            raise WireError(
                f"rank {sender} announced a message in {len(parts)} parts of {sum(parts)} bytes; expected at most "
                f"{MAX_MESSAGE_BYTES}."
            )
        buffer, start = np.empty(sum(parts), np.uint8), 0
        for size in parts:
            self.comm.Recv([buffer[start : start + size], MPI.BYTE], sender, _PART_TAG)
            start += size
        return sender, deserialize(buffer.data)

    def flush(self) -> None:
        """Wait until everything has been sent."""
        for sends, _ in self.in_flight:
            MPI.Request.Waitall(sends)
        self.in_flight.clear()


class MpiTransport:
    """The server's transport. Each client always runs on the same rank, where its state is."""

    def __init__(self, endpoint: MpiEndpoint, find_rank: Callable[[ClientId], int]) -> None:
        self.endpoint, self.find_rank = endpoint, find_rank

    def send(self, request: Request) -> None:
        self.endpoint.send(self.find_rank(request.client), OutgoingMessage.from_value(request))

    def receive(self, timeout: float) -> Reply | None:
        try:
            result = self.endpoint.receive(timeout)
        except WireError as error:
            raise RunError(
                f"a rank sent an invalid message: {error} Use the same version of Motet on all nodes."
            ) from None
        if result is None:
            return None
        sender, value = result
        if not isinstance(value, Reply):
            raise RunError(f"rank {sender} sent a {type(value).__name__}; expected a reply.")
        return value

    def close(self) -> None: ...
