"""What both stages of ATC share: the layers of the backbone, and a client's state with its optimizer."""

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

ENCODER, MLM_HEAD, DECODER = Layers.parse("encoder"), Layers.parse("encoder head"), Layers.parse("decoder")
BACKBONE = Layers.parse("encoder", "encoder head", "decoder")


def select_backbones(start: InitialModels, layers: Layers) -> dict[ClientId, Params]:
    """Return these layers of each client's model. Clients without a model of their own share one value."""
    if any(not start.shared.select_layers(part).layout.names for part in (ENCODER, MLM_HEAD, DECODER)):
        raise ConfigError(
            "atc: the models do not share an encoder, a decoder and a head for masked language modeling; "
            "use model.name=mixed:<encoder> in all groups, such as mixed:minilm or mixed:tiny."
        )
    shared = start.shared.select_layers(layers)
    return {c: start.personal[c].select_layers(layers) if c in start.personal else shared for c in start.clients}


@message
@dataclass(frozen=True, eq=False)
class BackboneClientState:
    """A client's local layers, and its optimizer state, which continues from round to round."""

    params: Params | None
    optimizer_state: OptimizerState | None


def load_optimizer_state(client_state: BackboneClientState | None, model: Params) -> OptimizerState | None:
    """Return the stored optimizer state, filled with zeros for the layers that are not stored.

    The moments stay on the device where they are stored. All clients of a round load their moments at once, and these
    may not fit on a GPU that trains only a few clients at a time.
    """
    if client_state is None or client_state.optimizer_state is None:
        return None
    stored = client_state.optimizer_state
    moments = tuple(_zeros_on(moment.flat.device, model).updated(moment) for moment in stored.moments)
    return OptimizerState(stored.steps, moments)


def _zeros_on(device: torch.device, model: Params) -> Params:
    return Params(model.layout, torch.zeros(model.layout.size, device=device))


def merge_optimizer_state(
    client_state: BackboneClientState | None,
    result: OptimizerState | None,
    model: Params,
    *,
    trained: Layers,
    stored: Layers,
) -> OptimizerState | None:
    """Return the optimizer state to store: the new moments of the trained layers, and the old moments of the others."""
    if result is None:
        return None
    before = load_optimizer_state(client_state, model)
    old = before.moments if before is not None else tuple(model.zeros_like() for _ in result.moments)
    merged = [o.updated(new.select_layers(trained)) for o, new in zip(old, result.moments, strict=True)]
    return OptimizerState(result.steps, tuple(moment.select_layers(stored) for moment in merged))
