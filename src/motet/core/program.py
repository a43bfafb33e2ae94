"""The contract of an algorithm: a server script and client methods that communicate only through messages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from motet.core.attributes import attribute
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.rebased import ModelParams
from motet.core.rng import Seed
from motet.core.script import ClientId, Program, Script
from motet.core.weighted import Weighted


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
    def index(self, client: ClientId, /) -> int: ...


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


class DummyExchange(NamedTuple):
    """One exchange of a round: the number of clients, and one client's messages with the right sizes and no content."""

    clients: int
    payload: Any
    reply: Any


class Algorithm(Program, Protocol):
    """The contract of a federated algorithm. Every algorithm inherits from this class, for its defaults.

    `init` returns the server state, and the script `round` returns the next one. Client methods are marked with
    `@work`. They take `(ctx, payload, client_state)` and return `(reply, new_client_state)`. If the new state is None,
    the client keeps the old one.

    `view` and `assemble` give the model that a client deploys. `view` returns what the server sends for it, and
    `assemble` combines that with the client's state. The client name "" stands for a new client without state.
    `assemble` returns None if the client cannot run the model.

    `motet.testing.check_algorithm` checks the contract.
    """

    @attribute
    def personal(self) -> bool:
        """True if there is no global model: every client deploys another one."""
        return False

    @attribute
    def models_on_clients(self) -> bool:
        """True if a client's model is in its own state, even if the server sends a complete model."""
        return False

    @attribute
    def frozen(self) -> Layers:
        """The layers that the model must freeze."""
        return Layers.none()

    @attribute
    def trained(self) -> Layers:
        """The layers that clients train. The others stay as they are in the initial model, which all clients have."""
        return Layers.all()

    @attribute
    def sends_weights_first(self) -> bool:
        """True if clients first send weights that depend on their losses. Not allowed with privacy noise."""
        return False

    @abstractmethod
    def init(self, start: InitialModels) -> Any: ...
    @abstractmethod
    def round(self, state: Any, rnd: Round) -> Script[Any]: ...
    @abstractmethod
    def view(self, state: Any, client: ClientId) -> Any: ...
    @abstractmethod
    def assemble(self, ctx: Any, view: Any, client_state: Any) -> ModelParams | None: ...

    def dummy_exchanges(self, state: Any, rnd: Round) -> list[DummyExchange]:
        """Return the exchanges of a round with dummy messages, from which `motet check` estimates the traffic.

        By default each client of the cohort receives its view and replies with a weighted value of the same size.
        """
        view = self.view(state, rnd.cohort[0])
        reply = Weighted(view, 1.0) if isinstance(view, Params) else view
        return [DummyExchange(clients=len(rnd.cohort), payload=view, reply=reply)]
