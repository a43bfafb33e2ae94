"""MOON (Li, He & Song 2021): pull a text's representation toward the global model's, away from the last local model's.

    ℓ = ℓ_sup + μ·ℓ_con,    ℓ_con = −log(exp(cos(z, z_glob)/τ) / (exp(cos(z, z_glob)/τ) + exp(cos(z, z_prev)/τ)))   (eq. 3)

z is the model's representation of a text, z_glob that of the global model of this round, and z_prev that of the client's
model after its last round. In its first round z_prev is z_glob, so that ℓ_con has no gradient.

Where we differ: the authors add a projection head to image models. Here z is the mean of the last hidden states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from motet.algorithms.whole_model import require_whole_model
from motet.core.errors import ConfigError
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, InitialModels, Round
from motet.core.script import ClientId, Script, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.learning.context import Context
from motet.learning.data.features import Examples
from motet.learning.modules.model import select_model_inputs
from motet.learning.objectives.atc_objectives import contrastive_loss
from motet.learning.objectives.readouts import Readout
from motet.learning.objectives.supervised import Batch, Forward, Objective
from motet.learning.solver import Solver


def represent(forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the logits and the representation of each text, from one forward pass."""
    inputs, widths = select_model_inputs(batch), list[int]()

    def run(module: Any, *tensors: Tensor) -> Tensor:
        if getattr(module, "config", None) is None:
            raise ConfigError("moon reads hidden states, which only models of transformers return; use another model.")
        output = module(**dict(zip(inputs, tensors, strict=True)), output_hidden_states=True)
        if output["logits"].dim() != 2 or "hidden_states" not in output:
            raise ConfigError("moon needs one prediction per text by an encoder or decoder; use it for classification.")
        mask = batch["attention_mask"].unsqueeze(-1)
        states = (output["hidden_states"][-1] * mask).sum(1) / mask.sum(1).clamp(min=1)
        widths.append(states.shape[1])
        return torch.cat([states.float(), output["logits"].float()], 1)

    states, logits = forward.apply(run, *inputs.values()).tensor_split(widths, 1)
    return logits, states


@message
@dataclass(frozen=True)
class ModelContrast(Objective):
    """The task's loss plus μ times the contrastive loss.

    The batch columns `z_global` and `z_previous` hold the representations of the global and the previous local model.
    """

    task: Objective
    mu: float
    temperature: float
    needs_full_model: ClassVar[bool] = True

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        logits, states = represent(forward, batch)
        losses, weights = self.task.losses(cast("Forward", lambda batch: {"logits": logits}), batch)
        contrast = contrastive_loss(states, batch["z_global"], batch["z_previous"].unsqueeze(1), self.temperature)
        return losses + self.mu * contrast, weights


@message
@dataclass(frozen=True)
class TextRepresentations(Readout):
    needs_full_model: ClassVar[bool] = True

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        return {"z": represent(forward, batch)[1]}


@dataclass(frozen=True)
class Moon(Algorithm):
    solver: Solver
    mu: float
    temperature: float
    name: str = "moon"

    def init(self, start: InitialModels) -> Params:
        return start.shared

    def round(self, state: Params, rnd: Round) -> Script[Params]:
        mean = yield from total(self.train, to_all(rnd.cohort, state))
        return state + mean.value

    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Params | None) -> Work[tuple[Weighted, Params | None]]:
        require_whole_model(self.name, ctx, params)
        train = ctx.participant.split("train")
        if not len(train):
            return Weighted(params.zeros_like(), 0.0), None
        z_global = (yield from ctx.infer(params, train, TextRepresentations()))["z"]
        z_previous = z_global
        if client_state is not None:
            z_previous = (yield from ctx.infer(client_state, train, TextRepresentations()))["z"]
        examples = Examples(train.features, train.rows, {"z_global": z_global, "z_previous": z_previous})
        objective = ModelContrast(ctx.participant.task.objective, self.mu, self.temperature)
        result = yield from ctx.fit(params, self.solver, objective=objective, examples=examples)
        return Weighted(result.params - params, float(ctx.size)), result.params

    def view(self, state: Params, client: ClientId) -> Params:
        return state

    def assemble(self, ctx: Context, view: Params, client_state: Params | None) -> Params:
        return view


def moon(solver: Solver = Solver(optimizer="sgd"), mu: float = 1.0, temperature: float = 0.5) -> Moon:
    """FedAvg with a contrast between the global and the last local representation (Li, He & Song 2021)."""
    return Moon(solver, mu, temperature)
