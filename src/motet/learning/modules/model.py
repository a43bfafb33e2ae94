"""An architecture with its frozen weights; what is trained of it is a Params that comes and goes."""

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

# What a module is called with; other columns of a batch (labels, a teacher's logits) are the objective's.
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
    """`parts` says of every parameter where it stands in the model; `stem` and `stack` where its embeddings and layers are.

    Trainable parameters are named as the module names them, tied ones once. Frozen ones belong to the module, are held
    once however many clients there are, and are never sent.
    """

    key: str
    module: nn.Module
    roles: Mapping[str, str]
    tokenizer: Any = None
    embeddings_path: str = ""
    layers_path: str = ""

    @cached_property
    def trainable(self) -> dict[str, nn.Parameter]:
        return {n: p for n, p in self.module.named_parameters() if p.requires_grad}

    @cached_property
    def layout(self) -> Layout:
        names = tuple(self.trainable)
        shapes = tuple(tuple(p.shape) for p in self.trainable.values())
        return Layout(names, shapes, tuple(self.roles[n] for n in names))

    @cached_property
    def initial_params(self) -> Params:
        """The trainable parameters the model starts with."""
        pieces = {n: p.detach().float() for n, p in self.trainable.items()}
        return Params(self.layout, Params.from_tensors(pieces).flat)

    def move(self, device: torch.device) -> None:
        """A model lives where its executor is; what is made from its parameters then lives there too."""
        self.module.to(device)
        self.__dict__.pop("initial_params", None)

    @cached_property
    def num_frozen_layers(self) -> int:
        """How many whole layers at the bottom are frozen, embeddings included; 0 if not even those are."""
        below = [p for p in self.layout.roles if not p.startswith(("pooler", "head", "final"))]
        if any(not p.startswith("layers.") for p in below) or not self.layers_path:
            return 0
        indices = [int(p.split(".")[1]) for p in below]
        return min(indices, default=len(self.module.get_submodule(self.layers_path)))  # type: ignore[arg-type]

    def freeze(self, layers: Layers) -> None:
        """Take layers out of training, for good; done once, when the model is made."""
        names = [n for n, _ in self.module.named_parameters()]
        layers.check(names, [self.roles[n] for n in names], "model.freeze")
        layers = layers.resolve([self.roles[n] for n in names])
        for name, parameter in self.module.named_parameters():
            if layers.matches(name, self.roles[name]):
                parameter.requires_grad_(False)
        if not any(p.requires_grad for p in self.module.parameters()):
            raise ConfigError(
                f"model.freeze: '{layers}' freezes the whole model and leaves nothing to train; leave a part."
            )

    def with_params(self, params: Params) -> nn.Module:
        """A copy of the module that holds these parameters, to export or to use elsewhere."""
        if params.layout != self.layout:
            raise LayoutError(f"parameters and model differ in {params.layout.describe_difference(self.layout)}.")
        module = copy.deepcopy(self.module)
        targets = dict(module.named_parameters())
        for name, value in params.tensors().items():
            targets[name].data.copy_(value)
        return module.eval()


def copy_sharing_parameters(module: nn.Module) -> nn.Module:
    """Another module over the very same parameters: frozen ones are held once however many copies there are."""
    made: nn.Module = copy.deepcopy(module, {id(p): p for p in module.parameters()})
    return made


def select_model_inputs(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: batch[name] for name in MODEL_INPUTS if name in batch}
