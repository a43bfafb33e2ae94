"""ATC's first stage: self-supervised training, with updates averaged in clusters of similar clients (section 3.2).

In each round the server assigns one of two objectives to all clients: masked language modeling (mlm), which trains
the encoder and the MLM head, or denoising reconstruction (dr), which trains the encoder and the decoder. Only the
layers that the objective trains are sent, in both directions.

    wₙ ← wₙ + Σ_{i ∈ Cₙ} |Dᵢ|/|D_Cₙ| · Δwᵢ,   Cₙ: n's cluster by the cosine of the updates of this round      (eq. 1)

With `solver.keep_state`, the optimizer and the learning-rate schedule span the whole stage. In a round in which a layer
is not trained, neither momentum nor weight decay changes it.

Where we differ: the authors' code sends all layers, including zeros. The clusters and the models are the same. With
AdamW, the steps of both objectives count in the correction of the moments' bias, also for a layer that only one trains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from motet.algorithms.atc.backbone_layers import BACKBONE, select_backbones
from motet.algorithms.update_similarity import cluster_clients
from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, DummyExchange, InitialModels, Round
from motet.core.script import ClientId, Note, Script, gather, work
from motet.core.weighted import Weighted, mean_of
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.data.denoising import SpecialTokens, corrupt_texts, mask_tokens
from motet.learning.data.features import Examples
from motet.learning.objectives.atc_objectives import DenoisingReconstruction, MaskedLanguageModeling
from motet.learning.objectives.supervised import Objective
from motet.learning.solver import Solver

ObjectiveName = Literal["mlm", "dr"]
TRAINED_LAYERS: dict[ObjectiveName, Layers] = {
    "mlm": Layers.parse("encoder", "encoder head"),
    "dr": Layers.parse("encoder", "decoder"),
}
_SEED_NAME = "lesson"  # part of the seeds; another word would change the results of a run
_OBJECTIVES: dict[ObjectiveName, Objective] = {"mlm": MaskedLanguageModeling(), "dr": DenoisingReconstruction()}
_CORRUPTIONS: dict[ObjectiveName, Callable[[Examples, SpecialTokens, np.random.Generator], Examples]] = {
    "mlm": mask_tokens,
    "dr": corrupt_texts,
}


@message
@dataclass(frozen=True, eq=False)
class AssignRequest:
    params: Params
    objective: ObjectiveName


@message
@dataclass(frozen=True, eq=False)
class AssignState:
    models: dict[ClientId, Params]


@dataclass(frozen=True)
class Assign(Algorithm):
    solver: Solver
    objectives: tuple[ObjectiveName, ...] = ("mlm", "dr")
    clusters: int = 5
    name: str = "assign"
    personal: bool = True

    def init(self, start: InitialModels) -> AssignState:
        return AssignState(select_backbones(start, BACKBONE))

    def round(self, state: AssignState, rnd: Round) -> Script[AssignState]:
        objective = self._draw_objective(rnd)
        requests = {
            client: AssignRequest(state.models[client].select_layers(TRAINED_LAYERS[objective]), objective)
            for client in rnd.cohort
        }
        replies = yield from gather(self.learn, requests)
        updates = {client: reply for client, reply in replies.items() if reply.weight > 0}
        labels = cluster_clients({client: update.value for client, update in updates.items()}, self.clusters)
        means = {
            cluster: mean_of(updates[client] for client in sorted(updates) if labels[client] == cluster)
            for cluster in sorted(set(labels.values()))
        }
        yield Note(values={"objective": objective, "clusters": labels})
        models = dict(state.models)
        for client in updates:
            params = requests[client].params + means[labels[client]].value
            models[client] = rnd.offload(state.models[client].updated(params))
        return AssignState(models)

    def _draw_objective(self, rnd: Round) -> ObjectiveName:
        """Return the first objective in the first round, and a random one afterwards."""
        index = 0 if rnd.index == 0 else int(rnd.seed.derive(_SEED_NAME).numpy().integers(len(self.objectives)))
        return self.objectives[index]

    @work(reveals="each")
    def learn(self, ctx: Context, request: AssignRequest, client_state: None) -> Work[tuple[Weighted, None]]:
        examples, layers = ctx.participant.split("train"), TRAINED_LAYERS[request.objective]
        if not len(examples):
            return Weighted(request.params.zeros_like(), 0.0), None
        before = ctx.initial_params.updated(request.params)
        steps, rng = self.solver.num_steps(len(examples)), ctx.seed.derive(_SEED_NAME).numpy()
        batch = min(self.solver.batch, len(examples))  # or a step of a small client would read a text several times
        rows = np.concatenate(self.solver.draw_batches(len(examples), rng))
        batches = Examples(examples.features, examples.rows[rows])
        tokens = SpecialTokens.from_tokenizer(ctx.model.tokenizer)
        result = yield from ctx.fit(
            before,
            replace(self.solver, steps=steps, batch=batch),
            objective=_OBJECTIVES[request.objective],
            examples=_CORRUPTIONS[request.objective](batches, tokens, rng),
            train_only=layers,
        )
        return Weighted((result.params - before).select_layers(layers), float(ctx.size)), None

    def dummy_exchanges(self, state: AssignState, rnd: Round) -> list[DummyExchange]:
        params = state.models[rnd.cohort[0]].select_layers(TRAINED_LAYERS[self._draw_objective(rnd)])
        return [DummyExchange(len(rnd.cohort), payload=params, reply=Weighted(params, 1.0))]

    def view(self, state: AssignState, client: ClientId) -> Params:
        return state.models[client] if client in state.models else next(iter(state.models.values()))

    def assemble(self, ctx: Context, params: Params, client_state: None) -> Params:
        return ctx.initial_params.updated(params)
