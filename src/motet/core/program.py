"""The contract of an algorithm: a server script and client methods that communicate only through messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.script import ClientId, Script


@dataclass(frozen=True)
class Round:
    """Everything a server script can see besides its state.

    `server` is the context in which the server itself trains and runs inference. `offload` returns the same parameters,
    moved to disk if they do not fit in memory.
    """

    index: int
    rounds: int
    cohort: tuple[ClientId, ...]
    seed: Seed
    server: Any
    offload: Callable[[Params], Params] = lambda params: params


class ClientList(Protocol):
    """The names of all clients, in order. Names may be generated on demand, so that a million clients cost nothing."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> ClientId: ...
    def __iter__(self) -> Iterator[ClientId]: ...


@dataclass(frozen=True)
class InitialModels:
    """The models an algorithm starts from.

    `shared` holds the parameters that all models have in common; if all clients have the same model, that is the whole
    model. `personal` holds the clients' models from an earlier phase. `server` is set if the server's model differs.
    """

    shared: Params
    clients: ClientList
    personal: Mapping[ClientId, Params] = field(default_factory=dict)
    server: Params | None = None

    def for_client(self, client: ClientId) -> Params:
        return self.personal.get(client, self.shared)

    @property
    def server_model(self) -> Params:
        return self.shared if self.server is None else self.server


class Algorithm(Protocol):
    """The contract of a federated algorithm. tests/contract checks it for all algorithms.

    `init` returns the server state, and the script `round` returns the next one. Client methods are marked with
    `@work`. They take `(ctx, payload, client_state)` and return `(reply, new_client_state)`. If the new state is None,
    the client keeps the old one.

    `view` and `assemble` give the model that a client deploys. `view` returns what the server sends for it, and
    `assemble` combines that with the client's state. The client name "" stands for a new client without state.
    `assemble` returns None if the client cannot run the model. `personal` is True if there is no global model.

    Optional attributes:
        solver                how clients train. Used to estimate the run time.
        frozen                the layers that the model must freeze.
        subprograms           other programs that this one uses. Clients offer their methods too.
        ephemeral             True if client state must never be written to disk.
        dummy_messages        (server context) -> (down, up): one client's messages in a round, to estimate traffic.
        sends_weights_first   True if clients first send weights that depend on losses; not allowed with privacy noise.
    """

    @property
    def name(self) -> str: ...
    @property
    def personal(self) -> bool: ...
    def init(self, start: InitialModels) -> Any: ...
    def round(self, state: Any, rnd: Round) -> Script[Any]: ...
    def view(self, state: Any, client: ClientId) -> Any: ...
    def assemble(self, ctx: Any, view: Any, client_state: Any) -> Params | None: ...
