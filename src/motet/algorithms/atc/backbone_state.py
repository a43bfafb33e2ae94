"""What both stages stand on: the backbone, and what a client keeps from round to round.

That is its private layers, and an optimiser which is not begun anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from motet.core.errors import ConfigError
from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import InitialModels
from motet.core.script import ClientId
from motet.learning.jobs import OptimizerState

ENCODER, NAMING, DECODER = Layers.parse("encoder"), Layers.parse("encoder head"), Layers.parse("decoder")
BACKBONE = Layers.parse("encoder", "encoder head", "decoder")


def backbones(start: InitialModels, layers: Layers) -> dict[ClientId, Params]:
    """These layers of each client's model; one value for all who have nothing of their own yet."""
    if any(not start.shared.select_layers(part).layout.names for part in (ENCODER, NAMING, DECODER)):
        raise ConfigError(
            "atc: the models have no encoder, decoder and head for masked words in common; give all groups one that has them: "
            "model.name=mixed:<encoder>, such as mixed:minilm or mixed:tiny."
        )
    shared = start.shared.select_layers(layers)
    return {c: start.personal[c].select_layers(layers) if c in start.personal else shared for c in start.clients}


@message
@dataclass(frozen=True, eq=False)
class Own:
    params: Params | None
    optimizer_state: OptimizerState | None


def moments_taken(own: Own | None, model: Params) -> OptimizerState | None:
    """The moments for the whole model; zero where none were kept.

    They stay where they were kept, which may be the host's memory: all clients of a round ask at once, and twice the size of
    all their models is much for a device that trains a few at a time.
    """
    if own is None or own.optimizer_state is None:
        return None
    return OptimizerState(
        own.optimizer_state.steps, tuple(_none_on(m.flat.device, model).updated(m) for m in own.optimizer_state.moments)
    )


def _none_on(device: torch.device, model: Params) -> Params:
    return Params(model.layout, torch.zeros(model.layout.size, device=device))


def moments_kept(
    own: Own | None, now: OptimizerState | None, model: Params, trained: Layers, kept: Layers
) -> OptimizerState | None:
    """The moments of what was trained, and of the rest what they were before; nothing of layers that are not kept."""
    if now is None:
        return None
    before = moments_taken(own, model)
    old = before.moments if before is not None else tuple(model.zeros_like() for _ in now.moments)
    whole = tuple(o.updated(n.select_layers(trained)) for o, n in zip(old, now.moments, strict=True))
    return OptimizerState(now.steps, tuple(m.select_layers(kept) for m in whole))
