"""The layers of the backbone that both stages of ATC share."""

from __future__ import annotations

from motet.core.errors import ConfigError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.program import InitialModels
from motet.core.script import ClientId

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
