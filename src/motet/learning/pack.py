"""A model made ready to train: its parameters as windows on one vector a client, its gradients as windows on another."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from motet.core.params import Params
from motet.learning.model import Model, inputs_of, over_same_tensors
from motet.learning.objectives import Batch


class Pack:
    """Row i of `flat` is client i's vector, row i of `grad` its gradient.

    So clipping, proximal terms and optimisers are operations on whole vectors, however many tensors the model has.
    """

    def __init__(self, model: Model, module: nn.Module, device: torch.device) -> None:
        """`module` is the model's own, or the upper part of it when its frozen prefix has been cut off."""
        self.model, self.device = model, device
        self.whole = module is model.module
        self.flat = torch.zeros(1, model.layout.size, device=device)
        self.grad = torch.zeros_like(self.flat)
        by_tensor = {id(p): name for name, p in model.trainable.items()}
        self.module = over_same_tensors(module)
        if device.type != "cpu":
            self.module.to(device)  # before the windows are set, so that only frozen tensors move
        leaves = {name: nn.Parameter(value[0]) for name, value in model.layout.views(self.flat)}
        for part, original in zip(self.module.modules(), module.modules(), strict=True):
            for name, parameter in list(original._parameters.items()):
                if parameter is not None and id(parameter) in by_tensor:
                    part._parameters[name] = leaves[by_tensor[id(parameter)]]
        for name, gradient in model.layout.views(self.grad):
            leaves[name].grad = gradient[0]
        self.leaves = leaves
        self.decayed: dict[object, Tensor] = {}  # where weight decay acts, by objective

    def load(self, params: Params) -> None:
        with torch.no_grad():
            self.flat[0].copy_(params.flat)

    def train(self) -> None:
        """Training mode, except for what is frozen below everything trained: its output must not change from step to step."""
        self.module.train()
        frozen = self.model.frozen_layers if self.whole else 0
        if frozen:
            self.module.get_submodule(self.model.stem).eval()
            stack = self.module.get_submodule(self.model.stack)
            for layer in list(stack.children())[:frozen]:
                layer.eval()

    def __call__(self, batch: Batch) -> Mapping[str, Tensor]:
        output: Mapping[str, Tensor] = self.module(**inputs_of(batch))
        return output
