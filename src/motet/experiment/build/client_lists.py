"""Client names as sequences that create each name on demand, so that a million clients cost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from motet.core.script import ClientId
from motet.partitions.partition import NamedClients, NumberedClients


@dataclass(frozen=True)
class ClientRange:
    """Consecutive clients of a partition. `prefix` distinguishes clients of different corpora."""

    names: NumberedClients | NamedClients
    start: int
    stop: int
    prefix: str = ""

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, index: int) -> ClientId:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.prefix + self.names[self.start + index]

    def __iter__(self) -> Iterator[ClientId]:
        return (self[i] for i in range(len(self)))

    def index(self, client: ClientId) -> int:
        """Return the client's position in this range."""
        index = self.partition_index(client)
        if index is None:
            raise ValueError(client)
        return index - self.start

    def partition_index(self, client: ClientId) -> int | None:
        """Return the client's index in the partition, or None if it is not in this range."""
        try:
            index = self.names.index(client.removeprefix(self.prefix))
        except ValueError:
            return None
        return index if client.startswith(self.prefix) and self.start <= index < self.stop else None


@dataclass(frozen=True)
class ClientRanges:
    """The clients of several ranges, one range after the other."""

    ranges: tuple[ClientRange, ...]

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    def __getitem__(self, index: int) -> ClientId:
        for clients in self.ranges:
            if index < len(clients):
                return clients[index]
            index -= len(clients)
        raise IndexError(index)

    def __iter__(self) -> Iterator[ClientId]:
        return (client for clients in self.ranges for client in clients)

    def index(self, client: ClientId) -> int:
        """Return the client's position in all ranges."""
        before = 0
        for clients in self.ranges:
            index = clients.partition_index(client)
            if index is not None:
                return before + index - clients.start
            before += len(clients)
        raise ValueError(client)
