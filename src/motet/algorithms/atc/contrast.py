"""ATC's second stage: clients train on their own tasks, with a contrastive loss over similar clients (section 3.3).

A round has two exchanges. First, each client computes representations of the synthetic instances. Then it trains
with

    task loss − log( s⁺ / (s⁺ + s⁻) )                                                                       (eq. 3)

where its neighbors of the previous round are positives and all other clients are negatives. It sends the update of
its encoder:

    wₙ ← wₙ + Σ_{i ∈ Kₙ} |Dᵢ|/|D_Kₙ| · Δwᵢ,   Kₙ: the K clients nearest to n by cosine, n included          (eq. 4)

All other layers stay on the client. There is no contrastive loss in the first round, when clients have no neighbors
yet, and if K leaves no negatives, because the loss would then be 0 for any model.

Where we differ: the authors' code sends all representations to all clients. The loss needs only the mean of the
positives and the negatives, so only those are sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from motet.algorithms.atc.backbone_layers import (
    ENCODER,
    MLM_HEAD,
    select_backbones,
)
from motet.algorithms.atc.synthetic_states import SyntheticInstances, SyntheticStates
from motet.algorithms.update_similarity import rank_by_similarity
from motet.core.errors import ConfigError, RunError
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, DummyExchange, InitialModels, Round
from motet.core.script import ClientId, Note, Script, gather, to_all, work
from motet.core.weighted import Weighted, mean_of
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.data.features import Examples
from motet.learning.jobs import ExtraExamples
from motet.learning.objectives.atc_objectives import ContrastiveTask, Representations
from motet.learning.solver import Solver

Pairing = Literal["random", "by_index"]
MAX_LOGGED_NEIGHBORS = 100  # per client and round


@message
@dataclass(frozen=True, eq=False)
class ContrastRequest:
    """A client's encoder, and representations of the synthetic instances.

    `positives` is the neighbors' mean, [instances, width]. `negatives` is [instances, other clients, width].
    """

    encoder: Params
    positives: Tensor | None
    negatives: Tensor | None


@message
@dataclass(frozen=True, eq=False)
class ContrastState:
    models: dict[ClientId, Params]
    ranking: dict[ClientId, tuple[ClientId, ...]]
    mlm_head: Params | None  # None once the synthetic instances have been created


@dataclass(frozen=True)
class Contrast(Algorithm):
    solver: Solver
    neighbors: int = 8  # including the client itself
    temperature: float = 1.0
    pairing: Pairing = "random"
    use_contrast: bool = True  # False: neighbors only average their encoders, and there are no synthetic instances
    synthetic: SyntheticStates = SyntheticStates()
    name: str = "contrast"
    personal: bool = True

    def __post_init__(self) -> None:
        if self.neighbors < 1:
            raise ConfigError(
                f"algorithm.neighbors is {self.neighbors}; expected at least 1, because a client is its own nearest neighbor."
            )

    @property
    def subprograms(self) -> tuple[SyntheticStates]:
        return (self.synthetic,)

    def init(self, start: InitialModels) -> ContrastState:
        return ContrastState(
            models=select_backbones(start, ENCODER), ranking={}, mlm_head=start.shared.select_layers(MLM_HEAD)
        )

    def round(self, state: ContrastState, rnd: Round) -> Script[ContrastState]:
        if state.mlm_head is not None and self.use_contrast:
            yield from self.synthetic.create(state.mlm_head, sorted(state.models), rnd)
        representations: dict[ClientId, Tensor] = {}
        if state.ranking and self.use_contrast:
            representations = yield from gather(self.represent, to_all(rnd.cohort, None))
        requests = {client: self._make_request(client, state, representations) for client in rnd.cohort}
        replies = yield from gather(self.learn, requests)
        updates = {client: reply for client, reply in replies.items() if reply.weight > 0}
        ranking = rank_by_similarity({client: update.value for client, update in updates.items()})
        yield Note(values={"neighbors": {c: list(order[:MAX_LOGGED_NEIGHBORS]) for c, order in ranking.items()}})
        models = dict(state.models)
        for client, order in ranking.items():
            mean = mean_of(updates[c] for c in sorted(order[: self.neighbors]))
            models[client] = rnd.offload(state.models[client] + mean.value)
        return ContrastState(models=models, ranking={**state.ranking, **ranking}, mlm_head=None)

    def _make_request(
        self, client: ClientId, state: ContrastState, representations: Mapping[ClientId, Tensor]
    ) -> ContrastRequest:
        ranked = [c for c in state.ranking.get(client, ()) if c in representations]
        neighbors = ranked[: self.neighbors]
        positives = [representations[c] for c in neighbors if c != client]
        negatives = [representations[c] for c in sorted(ranked) if c not in neighbors]
        request = ContrastRequest(encoder=state.models[client], positives=None, negatives=None)
        if not positives or not negatives:
            return request
        return replace(request, positives=torch.stack(positives).mean(0), negatives=torch.stack(negatives, 1))

    @work(reveals="each")
    def represent(self, ctx: Context, _: None, client_state: Params | None) -> Work[tuple[Tensor, None]]:
        """Compute representations of the synthetic instances, which replace the output of the encoder."""
        params = ctx.initial_params.updated(client_state)
        predictions = yield from ctx.infer(params, self._synthetic_examples(ctx), Representations())
        return predictions["representations"], None

    @work(reveals="each")
    def learn(
        self, ctx: Context, request: ContrastRequest, client_state: Params | None
    ) -> Work[tuple[Weighted, Params | None]]:
        if not len(ctx.participant.split("train")):
            return Weighted(request.encoder.zeros_like(), 0.0), client_state
        before = self.assemble(ctx, request.encoder, client_state)
        objective, synthetic = ctx.participant.task.objective, None
        if request.positives is not None and request.negatives is not None:
            objective = ContrastiveTask(objective, self.temperature)
            examples = self._synthetic_examples(ctx, positives=request.positives, negatives=request.negatives)
            synthetic = ExtraExamples(examples, by_index=self.pairing == "by_index")
        result = yield from ctx.fit(
            before,
            self.solver,
            objective=objective,
            extra_examples=synthetic,
        )
        update = (result.params - before).select_layers(ENCODER)
        return Weighted(update, float(ctx.size)), result.params.exclude_layers(ENCODER)

    def _synthetic_examples(self, ctx: Context, **columns: Tensor) -> Examples:
        instances: SyntheticInstances | None = ctx.read_state(self.synthetic.name)
        if instances is None:
            raise RunError(
                f"{ctx.client} did not receive the synthetic instances, so it cannot be compared with other clients."
            )
        return Examples.from_columns(states=instances.states, tokens=instances.tokens, **columns)

    def dummy_exchanges(self, state: ContrastState, rnd: Round) -> list[DummyExchange]:
        """Assume that all clients of the cohort took part in the previous round."""
        clients, encoder = len(rnd.cohort), state.models[rnd.cohort[0]]
        request = ContrastRequest(encoder, positives=None, negatives=None)
        learn = DummyExchange(clients, payload=request, reply=Weighted(encoder, 1.0))
        if not self.use_contrast:
            return [learn]
        if rnd.index == 0:
            return [*self.synthetic.dummy_exchanges(len(state.models), rnd.server), learn]
        vectors = torch.zeros(self.synthetic.instances, rnd.server.model.module.config.decoder.hidden_size)
        if 1 < self.neighbors < clients:
            negatives = vectors.unsqueeze(1).expand(-1, clients - self.neighbors, -1)
            learn = learn._replace(payload=replace(request, positives=vectors, negatives=negatives))
        return [DummyExchange(clients, payload=None, reply=vectors), learn]

    def view(self, state: ContrastState, client: ClientId) -> Params:
        return state.models[client] if client in state.models else next(iter(state.models.values()))

    def assemble(self, ctx: Context, params: Params, client_state: Params | None) -> Params:
        return ctx.initial_params.updated(client_state, params)
