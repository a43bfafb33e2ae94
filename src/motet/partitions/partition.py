"""A partition: the training rows and the test rows of each client."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.partitions.traits import Trait


@dataclass(frozen=True, eq=False)
class ClientRows:
    """Row numbers sorted by client: client k has rows[offsets[k] : offsets[k + 1]].

    If clients' data change over time, the rows of each client are cut into `phases` pieces, the earliest first.
    Everything is in two arrays, so a partition of millions of clients stays small.
    """

    rows: np.ndarray
    offsets: np.ndarray
    phases: int = 1

    def __post_init__(self) -> None:
        for name in ("rows", "offsets"):  # a view of a mapped file: a slice of np.memmap takes 20 times as long
            object.__setattr__(self, name, np.asarray(getattr(self, name)))

    @staticmethod
    def from_lists(parts: Sequence[np.ndarray]) -> ClientRows:
        """Build from one array of rows per client."""
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(p) for p in parts], out=offsets[1:])
        return ClientRows(np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64), offsets)

    @staticmethod
    def from_sizes(rows: np.ndarray, sizes: np.ndarray) -> ClientRows:
        """Cut rows into consecutive pieces, one per client."""
        return ClientRows(rows.astype(np.int64), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    def __len__(self) -> int:
        """Return the number of clients."""
        return (len(self.offsets) - 1) // self.phases

    def __getitem__(self, client: int) -> np.ndarray:
        """Return all rows of a client, in every phase."""
        return self.rows[self.offsets[client * self.phases] : self.offsets[(client + 1) * self.phases]]

    def in_phase(self, client: int, phase: int) -> np.ndarray:
        piece = client * self.phases + phase
        return self.rows[self.offsets[piece] : self.offsets[piece + 1]]

    def phase_pieces(self) -> Iterator[np.ndarray]:
        """Yield the rows of every client in every phase."""
        return (self.rows[a:b] for a, b in itertools.pairwise(self.offsets.tolist()))

    @property
    def sizes(self) -> np.ndarray:
        """The number of rows of each client."""
        return np.diff(self.offsets[:: self.phases])

    def expand(self, first: np.ndarray | None) -> ClientRows:
        """Replace each row i by the rows first[i] to first[i + 1], for examples that became several rows."""
        if first is None:
            return self
        counts = first[self.rows + 1] - first[self.rows]
        ends = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(ends[-1]) - np.repeat(ends[:-1], counts)
        return ClientRows(np.repeat(first[self.rows], counts) + within, ends[self.offsets], self.phases)


@dataclass(frozen=True)
class NumberedClients:
    """The client names client-00, client-01, …, computed on demand. They sort in the order of the clients."""

    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return f"client-{index:0{len(str(max(1, self.count - 1)))}d}"

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(self.count))

    def index(self, name: str) -> int:
        number = name.removeprefix("client-")
        if not number.isdigit() or int(number) >= self.count or self[int(number)] != name:
            raise ValueError(name)
        return int(number)


@dataclass(frozen=True)
class NamedClients:
    """Client names from the data, sorted, so that `index` is a binary search."""

    names: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> str:
        return str(self.names[index])

    def __iter__(self) -> Iterator[str]:
        return (str(name) for name in self.names)

    def index(self, name: str) -> int:
        position = int(np.searchsorted(self.names, name))
        if position >= len(self.names) or self.names[position] != name:
            raise ValueError(name)
        return position


@dataclass(frozen=True, eq=False)
class Partition:
    """A division of a corpus over clients. A row may belong to no client: unused, public, dev or global test row."""

    train: ClientRows
    test: ClientRows
    recipe: Mapping[str, Any]  # strategy, options and seed
    client_names: NamedClients | None = None  # None: the clients are numbered
    public: np.ndarray | None = None  # rows that the server and all clients may read, as texts without labels
    global_test: np.ndarray | None = None  # None: all test rows of the corpus
    rounds_per_phase: int = 0  # 0: the clients' data do not change over time
    trait: Trait | None = None  # the trait that differs between clients, if it is not a column of the corpus
    dev: np.ndarray | None = None  # training rows held out to select the best round
    local_dev: ClientRows | None = None  # the same rows by the client that they were held out from

    def __len__(self) -> int:
        """Return the number of clients."""
        return len(self.train)

    @property
    def clients(self) -> NumberedClients | NamedClients:
        return self.client_names or NumberedClients(len(self))

    def index(self, client: str) -> int:
        try:
            return self.clients.index(client)
        except ValueError:
            raise ConfigError(
                f"there is no client '{client}'; the {len(self)} clients are {self.clients[0]} to "
                f"{self.clients[len(self) - 1]}."
            ) from None

    def phase(self, round: int) -> int:
        """Return the phase of a round; the last phase does not end."""
        return min(round // self.rounds_per_phase, self.train.phases - 1) if self.rounds_per_phase else 0

    @cached_property
    def digest(self) -> str:
        """A digest of rows and client names, independent of the recipe."""
        digest = hashlib.sha256()
        for client_rows in (self.train, self.test):
            digest.update(client_rows.rows.tobytes())
            digest.update(client_rows.offsets.tobytes())
        for rows in (self.public, self.global_test):
            if rows is not None:
                digest.update(b"rows" + rows.tobytes())
        if self.dev is not None:
            digest.update(b"dev" + self.dev.tobytes())
        if self.client_names is not None:
            digest.update("\0".join(self.client_names).encode())
        if self.rounds_per_phase:
            digest.update(f"phases {self.train.phases} every {self.rounds_per_phase}".encode())
        return digest.hexdigest()[:16]


def check_clients(clients: int, examples: int) -> None:
    if clients < 1:
        raise ConfigError(f"partition.clients is {clients}; it must be at least 1.")
    if clients > examples:
        raise ConfigError(
            f"partition.clients is {clients}, but there are {examples} training examples. Ask for at most that many."
        )


def check_positive(name: str, value: float, hint: str) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise ConfigError(f"partition.{name} is {value}; it must be above 0 ({hint}).")
