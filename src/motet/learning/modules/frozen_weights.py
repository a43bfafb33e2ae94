"""The frozen weights under adapters, which some methods change for all clients at once (FedEx-LoRA, FLoRA)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from motet.core.errors import ConfigError
from motet.core.params import Params


class FrozenWeights:
    """Adds an update to the frozen weights of a module, in place: all copies of the module share them."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.originals: dict[str, Tensor] = {}  # of the weights that were ever changed
        self.update: Params | None = None

    def apply(self, update: Params | None) -> None:
        """Set the weights to the original ones plus `update`. Does nothing if that is how they are."""
        if update is self.update:
            return
        updates = {} if update is None else update.tensors()
        with torch.no_grad():
            for path in {*self.originals, *updates}:
                layer: Any = self.module.get_submodule(path)
                weight: Tensor = layer.get_base_layer().weight
                original = self.originals.setdefault(path, weight.detach().clone())
                weight.copy_(original if path not in updates else _add(original, updates[path], layer))
        self.update = update


def _add(original: Tensor, update: Tensor, layer: Any) -> Tensor:
    if not original.is_floating_point():
        raise ConfigError(
            "this method adds updates to the frozen weights, but they are quantized. Set model.quantize=none."
        )
    (scaling,) = layer.scaling.values()
    oriented: Tensor = update.T if layer.fan_in_fan_out else update  # GPT-2 stores [in, out]
    return original.float() + float(scaling) * oriented.to(original.device)
