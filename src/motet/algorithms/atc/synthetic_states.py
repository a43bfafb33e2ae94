"""Synthetic encoder states, on which ATC compares all clients in its second stage (section 3.3).

Instance k is a weighted mean of one input of every client, as seen by the client's encoder. One client, drawn for
each k, is primary and has half of the weight; the others share the rest, because equal weights would blur all
instances. The resulting states, and the most likely tokens for them, are sent to all clients.

With `weighting: server` the server reads the states of real inputs, from which texts can be recovered. With
`weighting: client` each client applies its weights itself and the server reads only the sum; see
docs/design/0009-atc.md.

Where we differ: the authors pad to 384 tokens and use as many instances as the smallest client has examples, up to
20,000. Here both numbers are options, and a client with fewer examples repeats them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from motet.core.errors import ConfigError, PrivacyError
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import DummyExchange, Round
from motet.core.rng import Seed
from motet.core.script import ClientId, Program, Script, gather, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.data.features import Examples
from motet.learning.objectives.atc_objectives import EncoderStates, PredictedTokens

StateWeighting = Literal["server", "client"]


@message
@dataclass(frozen=True, eq=False)
class SyntheticInstances:
    """`states` is [instances, tokens, width] and `tokens` is [instances, tokens]."""

    states: Tensor
    tokens: Tensor


@dataclass(frozen=True)
class SyntheticStates(Program):
    instances: int = 512
    tokens: int = 128
    half: bool = True
    weighting: StateWeighting = "server"
    primary: float = 0.5
    name: str = "between"

    def __post_init__(self) -> None:
        for name in ("instances", "tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"algorithm.{name} is {getattr(self, name)}; expected at least 1.")

    def create(self, mlm_head: Params, clients: Sequence[ClientId], rnd: Round) -> Script[None]:
        """Create the synthetic instances and send them to all clients. `mlm_head` is the mean of the clients' heads."""
        weights = dict(zip(clients, self.draw_weights(len(clients), rnd.seed), strict=True))
        if self.weighting == "client":
            mean = yield from total(self.send_weighted_states, weights)
            states = mean.value["states"] * mean.weight
        else:
            replies = yield from gather(self.send_states, to_all(clients, None))
            states = _weighted_sum(replies, weights)
        server: Context = rnd.server
        params = server.model.initial_params.updated(mlm_head)
        predictions = yield from server.infer(params, Examples.from_columns(states=states), PredictedTokens())
        instances = SyntheticInstances(states.half() if self.half else states, predictions["tokens"])
        yield from total(self.store, to_all(clients, instances))

    def dummy_exchanges(self, num_clients: int, server: Context) -> list[DummyExchange]:
        """Return the exchanges of `create` with dummy messages."""
        config: Any = server.model.module.config
        states = torch.zeros(self.instances, self.tokens, config.encoder.hidden_size)
        sent_states = states.half() if self.half else states
        instances = SyntheticInstances(sent_states, torch.zeros(self.instances, self.tokens, dtype=torch.int32))
        send = DummyExchange(num_clients, payload=None, reply=sent_states)
        if self.weighting == "client":
            weighted_states = Weighted(Params.from_tensors({"states": states}), 1.0)
            send = DummyExchange(num_clients, payload=torch.zeros(self.instances), reply=weighted_states)
        return [send, DummyExchange(num_clients, payload=instances, reply=_stored_reply())]

    def draw_weights(self, num_clients: int, seed: Seed) -> list[Tensor]:
        """Return each client's weights [instances]: `primary` if it is primary, else an equal share of the rest."""
        primary = seed.derive("primary").numpy().integers(num_clients, size=self.instances)
        is_primary = primary[None] == np.arange(num_clients)[:, None]
        rest = (1 - self.primary) / max(1, num_clients - 1)
        table = np.where(is_primary, self.primary if num_clients > 1 else 1.0, rest)
        return list(torch.from_numpy(table.astype(np.float32)))

    @work(reveals="each", name="show")
    def send_states(self, ctx: Context, _: None, client_state: SyntheticInstances | None) -> Work[tuple[Tensor, None]]:
        if self.weighting == "client":
            raise PrivacyError(
                "between.show: this client sends its states only weighted, in a sum (atc.weighting=client)."
            )
        return (yield from self._encode(ctx, self.half)), None

    @work(reveals="sum", name="weigh")
    def send_weighted_states(
        self, ctx: Context, weights: Tensor, client_state: SyntheticInstances | None
    ) -> Work[tuple[Weighted, None]]:
        states = yield from self._encode(ctx, half=False)
        return Weighted(Params.from_tensors({"states": weights[:, None, None] * states}), 1.0), None

    @work(reveals="sum", name="keep")
    def store(
        self, ctx: Context, instances: SyntheticInstances, client_state: SyntheticInstances | None
    ) -> tuple[Weighted, SyntheticInstances]:
        return _stored_reply(), instances

    def _encode(self, ctx: Context, half: bool) -> Work[Tensor]:
        """Encode the client's inputs, in a fixed random order, with its initial model. Without inputs, return zeros."""
        examples = ctx.participant.split("train")
        if not len(examples):
            config: Any = ctx.model.module.config
            shape = (self.instances, self.tokens, config.encoder.hidden_size)
            return torch.zeros(shape, dtype=torch.float16 if half else torch.float32)
        order = Seed(ctx.seed.root, ("instances", ctx.client)).numpy().permutation(len(examples))
        repeated = examples.select(np.resize(order, self.instances))
        predictions = yield from ctx.infer(ctx.initial_params, repeated, EncoderStates(self.tokens, half))
        return predictions["states"]


def _stored_reply() -> Weighted:
    return Weighted(Params.from_scalars(stored=1), 1.0)


def _weighted_sum(states: dict[ClientId, Tensor], weights: dict[ClientId, Tensor]) -> Tensor:
    """Sum the states of the clients that replied, with their weights scaled to sum to one per instance."""
    clients = sorted(states)
    present = torch.stack([weights[client] for client in clients])
    result = torch.zeros(())
    for client, weight in zip(clients, present / present.sum(0), strict=True):
        result = result + weight[:, None, None] * states[client].float()
    return result
