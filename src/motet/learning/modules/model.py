"""A model architecture with its frozen weights. The trainable weights are passed in and out as `Params`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from motet.core.errors import ConfigError, LayoutError
from motet.core.layers import Layers
from motet.core.params import Layout, Params
from motet.core.rebased import ModelParams, split_base
from motet.learning.modules.frozen_weights import FrozenWeights

# Batch columns that are passed to the module. Other columns (labels, teacher logits) are for the objective.
MODEL_INPUTS = (
    "input_ids",
    "attention_mask",
    "token_type_ids",
    "inputs_embeds",
    "decoder_input_ids",
    "decoder_attention_mask",
)


@dataclass(frozen=True, eq=False)
class Model:
    """A module and the role of each of its parameters ("embeddings", "layers.0", "head").

    `embeddings_path` and `layers_path` are the submodule paths of the embeddings and of the list of layers, if known.
    Trainable parameters keep the module's names; tied parameters appear once. Frozen parameters belong to the module:
    they are stored once for all clients and are never sent.
    """

    key: str
    module: nn.Module
    roles: Mapping[str, str]
    tokenizer: Any = None
    embeddings_path: str = ""
    layers_path: str = ""
    max_tokens: int | None = None  # texts are cut at this length
    adapter_base: str = ""  # the pretrained causal model that the adapters belong to, if they can be saved without it
    virtual_tokens: tuple[int, ...] = ()  # before every prompt, in prompt tuning
    first_token_only: bool = False  # the last layer may be computed for the first token alone

    @cached_property
    def trainable(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    @cached_property
    def layout(self) -> Layout:
        return Layout(
            names=tuple(self.trainable),
            shapes=tuple(tuple(p.shape) for p in self.trainable.values()),
            roles=tuple(self.roles[name] for name in self.trainable),
        )

    @cached_property
    def initial_params(self) -> Params:
        """The trainable parameters before any training."""
        tensors = {name: p.detach().float() for name, p in self.trainable.items()}
        return Params(self.layout, Params.from_tensors(tensors).flat)

    @cached_property
    def frozen_weights(self) -> FrozenWeights:
        return FrozenWeights(self.module)

    def to_device(self, device: torch.device) -> None:
        """Move the module. `initial_params` is computed again, on the new device."""
        self.module.to(device)
        self.__dict__.pop("initial_params", None)

    @cached_property
    def num_frozen_layers(self) -> int:
        """The number of frozen layers at the bottom of the model, or 0 if the embeddings are trained."""
        roles = [role for role in self.layout.roles if not role.startswith(("pooler", "head", "final"))]
        if any(not role.startswith("layers.") for role in roles) or not self.layers_path:
            return 0
        trained = [int(role.split(".")[1]) for role in roles]
        return min(trained, default=len(self.module.get_submodule(self.layers_path)))  # type: ignore[arg-type]

    def freeze(self, layers: Layers) -> None:
        """Freeze layers permanently. Call it once, before `layout` or `initial_params` is read."""
        names = [name for name, _ in self.module.named_parameters()]
        roles = [self.roles[name] for name in names]
        layers.check(names, roles, "model.freeze")
        layers = layers.resolve(roles)
        for name, parameter in self.module.named_parameters():
            if layers.matches(name, self.roles[name]):
                parameter.requires_grad_(False)
        if not any(p.requires_grad for p in self.module.parameters()):
            raise ConfigError(
                f"model.freeze: '{layers}' freezes the whole model; at least one layer must be trained. "
                "Write e.g. model.freeze=[embeddings]."
            )

    def with_params(self, model: ModelParams) -> nn.Module:
        """Return a copy of the module with these parameters, in evaluation mode."""
        params, base_update = split_base(model)
        if params.layout != self.layout:
            raise LayoutError(f"parameters and model differ in {params.layout.describe_difference(self.layout)}.")
        self.frozen_weights.apply(base_update)
        module = copy.deepcopy(self.module)
        targets = dict(module.named_parameters())
        for name, value in params.tensors().items():
            targets[name].data.copy_(value)
        return module.eval()


def copy_sharing_parameters(module: nn.Module) -> nn.Module:
    """Copy a module but not its parameters, so that frozen weights are stored once for all copies."""
    duplicate: nn.Module = copy.deepcopy(module, {id(p): p for p in module.parameters()})
    return duplicate


def select_model_inputs(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: batch[name] for name in MODEL_INPUTS if name in batch}
