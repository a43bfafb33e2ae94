"""A partition: for each client the rows it trains on and the rows it is tested on."""

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
    """Rows sorted by client: client k has rows[offsets[k] : offsets[k + 1]]. Two arrays, however many clients there are.

    Where a client's rows change in time they are cut further, into `phases` pieces a client, the earliest first.
    """

    rows: np.ndarray
    offsets: np.ndarray
    phases: int = 1

    @staticmethod
    def from_lists(parts: Sequence[np.ndarray]) -> ClientRows:
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(p) for p in parts], out=offsets[1:])
        return ClientRows(np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64), offsets)

    @staticmethod
    def from_sizes(rows: np.ndarray, sizes: np.ndarray) -> ClientRows:
        """Consecutive pieces of the given sizes."""
        return ClientRows(rows.astype(np.int64), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    def __len__(self) -> int:
        return (len(self.offsets) - 1) // self.phases

    def __getitem__(self, client: int) -> np.ndarray:
        return self.rows[self.offsets[client * self.phases] : self.offsets[(client + 1) * self.phases]]

    def in_phase(self, client: int, phase: int) -> np.ndarray:
        """What a client has in one phase."""
        piece = client * self.phases + phase
        return self.rows[self.offsets[piece] : self.offsets[piece + 1]]

    def phase_pieces(self) -> Iterator[np.ndarray]:
        """All rows, client by client and phase by phase."""
        return (self.rows[a:b] for a, b in itertools.pairwise(self.offsets.tolist()))

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.offsets[:: self.phases])

    @property
    def owners(self) -> np.ndarray:
        """Whose each row is."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def expand(self, first: np.ndarray | None) -> ClientRows:
        """The same division of what each row became: row i is now rows first[i] to first[i + 1]."""
        if first is None:
            return self
        counts = first[self.rows + 1] - first[self.rows]
        ends = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(ends[-1]) - np.repeat(ends[:-1], counts)
        return ClientRows(np.repeat(first[self.rows], counts) + within, ends[self.offsets], self.phases)


@dataclass(frozen=True)
class NumberedClients:
    """client-00 … client-99: names that sort in the clients' order, made when they are asked for."""

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
    """The names the data give, sorted, so that one is found by halving."""

    names: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> str:
        return str(self.names[index])

    def __iter__(self) -> Iterator[str]:
        return (str(name) for name in self.names)

    def index(self, name: str) -> int:
        place = int(np.searchsorted(self.names, name))
        if place >= len(self.names) or self.names[place] != name:
            raise ValueError(name)
        return place


@dataclass(frozen=True, eq=False)
class Partition:
    """`recipe` is what made it. Rows that no client has are nobody's: left out, or public, or only in the global test set."""

    train: ClientRows
    test: ClientRows
    recipe: Mapping[str, Any]
    client_names: NamedClients | None = None  # the clients' own names, if they have any
    public: np.ndarray | None = None  # rows that all may see, server and clients, as texts without labels
    global_test: np.ndarray | None = None  # the global test set; None: all test rows of the corpus
    rounds_per_phase: int = 0  # a phase lasts so many rounds; 0: nothing changes in time
    trait: Trait | None = None  # what was shifted, where no column of the corpus says it
    dev: np.ndarray | None = None  # training rows that nobody trains on, by which the best round is chosen

    def __len__(self) -> int:
        return len(self.train)

    @property
    def clients(self) -> NumberedClients | NamedClients:
        return self.client_names or NumberedClients(len(self))

    def index(self, client: str) -> int:
        try:
            return self.clients.index(client)
        except ValueError:
            raise ConfigError(
                f"there is no client '{client}'; there are {len(self)}, {self.clients[0]} to {self.clients[len(self) - 1]}."
            ) from None

    def phase(self, round: int) -> int:
        """Which phase a round is in; the last one stays."""
        return min(round // self.rounds_per_phase, self.train.phases - 1) if self.rounds_per_phase else 0

    @cached_property
    def digest(self) -> str:
        """What tells this division from any other, however it was made."""
        digest = hashlib.sha256()
        for shares in (self.train, self.test):
            digest.update(shares.rows.tobytes())
            digest.update(shares.offsets.tobytes())
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
        raise ConfigError(f"partition.clients is {clients}; at least 1 is needed.")
    if clients > examples:
        raise ConfigError(
            f"partition.clients is {clients}, but there are {examples} training examples; ask for at most that."
        )


def check_positive(name: str, value: float, meaning: str) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise ConfigError(f"partition.{name} is {value}; it must be above 0 ({meaning}).")
