"""What an algorithm is: a server script and client methods that meet only in messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.script import ClientId, Script


@dataclass(frozen=True)
class Round:
    """All a server script may see besides its state. `server` is the server's own place to train and infer."""

    index: int
    rounds: int
    cohort: tuple[ClientId, ...]
    seed: Seed
    server: Any
    shelve: Callable[[Params], Params] = lambda params: params  # the same value, on disk where it would fill the memory


class ClientList(Protocol):
    """Who takes part, in order: names that are made when they are asked for, so that a million cost nothing."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> ClientId: ...
    def __iter__(self) -> Iterator[ClientId]: ...


@dataclass(frozen=True)
class InitialModels:
    """Where an algorithm begins: what all models have in common, or what an earlier phase left each client.

    Where all clients have the same model, `shared` is all of it. `server` is the server's own model, if that is another.
    """

    shared: Params
    clients: ClientList
    own: Mapping[ClientId, Params] = field(default_factory=dict)
    server: Params | None = None

    def of(self, client: ClientId) -> Params:
        return self.own.get(client, self.shared)

    @property
    def central(self) -> Params:
        """The model that the server itself would train."""
        return self.shared if self.server is None else self.server


class Algorithm(Protocol):
    """The contract that the contract suite tests.

    `view` and `assemble` answer "which model would this client deploy?": what the server would send, put together
    with what the client remembers; the client "" is somebody who has no memory. `personal` says that there is no common
    model for them: each client's own is all there is.
    """

    @property
    def name(self) -> str: ...
    @property
    def personal(self) -> bool: ...
    def init(self, start: InitialModels) -> Any: ...
    def round(self, state: Any, rnd: Round) -> Script[Any]: ...
    def view(self, state: Any, client: ClientId) -> Any: ...
    def assemble(self, ctx: Any, view: Any, memory: Any) -> Params | None: ...  # None: this one cannot run it
