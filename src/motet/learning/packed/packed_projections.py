"""Queries, keys and values of self-attention as one product, where their weights lie side by side.

A product of three times the width fills a GPU better. The gradients of the input are added inside the product, and one
pass copies all biases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from motet.learning.packed.adjacent_tensors import join_adjacent
from motet.learning.packed.grad_targets import GradTarget
from motet.learning.packed.packed_layers import ClientAxis, PackedLinear, Projections, packed_linear


class _SplitProjections(torch.autograd.Function):
    """Splits the last axis into equal parts. If the gradients of the parts lie side by side, they are not copied."""

    @staticmethod
    def forward(_: Any, joined: Tensor, parts: int) -> tuple[Tensor, ...]:
        return joined.chunk(parts, -1)

    @staticmethod
    def backward(_: Any, *grads: Tensor) -> tuple[Tensor, None]:
        joined = join_adjacent(grads, -1)
        return torch.cat(grads, -1) if joined is None else joined, None


class PackedSelfAttention(nn.Module):
    """Mixed in before a self-attention. It computes the projections of its input, and the three layers return them."""

    query: nn.Module
    key: nn.Module
    value: nn.Module

    @property
    def projections(self) -> tuple[nn.Module, nn.Module, nn.Module]:
        return self.query, self.key, self.value

    def forward(self, *inputs: Any, **options: Any) -> Any:
        layers = [layer for layer in self.projections if isinstance(layer, PackedLinear)]
        if inputs and len(layers) == 3:
            layers[0].client_axis.projections = _project(layers[0].client_axis, inputs[0], layers)
        return super().forward(*inputs, **options)


def install_joint_projections(module: nn.Module) -> None:
    """Mix `PackedSelfAttention` into every block with three such layers, in place, before the layers are packed."""
    for block in list(module.modules()):
        layers = [block._modules.get(name) for name in ("query", "key", "value")]
        shapes = {layer.weight.shape for layer in layers if type(layer) is nn.Linear and layer.bias is not None}
        if len(shapes) == 1 and all(type(layer) is nn.Linear for layer in layers):
            cls: Any = type(block)
            block.__class__ = type(f"Packed{cls.__name__}", (PackedSelfAttention, cls), {})


def joint_order(names: Sequence[str], module: nn.Module, leaves: dict[int, str], chosen: set[str]) -> list[str]:
    """Return names in an order in which weights of joint products follow each other, and so do their biases.

    `leaves` are the names of parameters by id. Only products whose parameters are all `chosen` are joined.
    """
    groups: dict[str, list[str]] = {}
    for block in module.modules():
        if isinstance(block, PackedSelfAttention):
            kinds = [[leaves.get(id(layer._parameters[k])) for layer in block.projections] for k in ("weight", "bias")]
            members = [name for kind in kinds for name in kind if name in chosen]
            if len(set(members)) == 6:
                groups[members[0]] = members
    moved = {name for members in groups.values() for name in members}
    return list(_flatten(groups.get(name, [] if name in moved else [name]) for name in names))


def _flatten(lists: Iterable[list[str]]) -> Iterable[str]:
    return (name for names in lists for name in names)


def _project(axis: ClientAxis, x: Tensor, layers: Sequence[PackedLinear]) -> Projections | None:
    """Return the outputs of the layers; None if their weights, or the places of their gradients, are not side by side."""
    kinds: list[list[Tensor]] = [[layer.weight for layer in layers], [layer.bias for layer in layers]]
    joined: list[Tensor] = []
    targets: dict[int, GradTarget] = {}
    for parameters in kinds:
        tensor = join_adjacent(parameters, 1) if all(p.dim() > 1 for p in parameters) else None
        if tensor is None:
            return None
        joined.append(tensor)
        if torch.is_grad_enabled() and any(p.requires_grad for p in parameters):
            target = _join_targets([axis.grad_targets.get(id(p)) for p in parameters if p.requires_grad])
            if target is None or target.view.shape != tensor.shape:
                return None
            targets[id(tensor.requires_grad_())] = target
    y = packed_linear(axis, x, weight=joined[0], bias=joined[1], transposed=True, grad_targets=targets)
    outputs: tuple[Tensor, ...] = _SplitProjections.apply(y, len(layers))  # type: ignore[no-untyped-call]
    return Projections(x, {id(layer): output for layer, output in zip(layers, outputs, strict=True)})


def _join_targets(parts: Sequence[GradTarget | None]) -> GradTarget | None:
    targets = [part for part in parts if part is not None]
    if len(targets) < len(parts) or len({target.is_written for target in targets}) > 1:
        return None
    view = join_adjacent([target.view for target in targets], 1)
    return None if view is None else GradTarget(view, targets[0].is_written, targets)
