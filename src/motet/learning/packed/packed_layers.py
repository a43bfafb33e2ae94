"""Packed versions of leaf layers: the leaf's class with another forward pass and one row of parameters per client.

Attention, activations and the model's own forward code are unchanged. They see one batch with the rows of all clients.
Only layers with trained parameters must know which rows belong to which client. A frozen leaf keeps its plain class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from motet.learning.packed.client_embedding import embed, embed_per_client
from motet.learning.packed.grad_targets import GradTarget
from motet.learning.packed.kernel_modules import kernels_for


class NotPackable(TypeError):  # noqa: N818 - not an error for the user: the model is run in another packing mode
    """Packed layers do not support this model, or an input of it."""


class CastResult(NamedTuple):
    """A tensor that was cast for a matrix product, its version counter at that time, and the result."""

    source: Tensor
    version: int
    result: Tensor


class Projections(NamedTuple):
    """Outputs of several layers that read the same input, by the id of the layer."""

    source: Tensor
    outputs: dict[int, Tensor]


GradTargets = tuple[GradTarget | None, GradTarget | None]  # of weight and bias
# A layer with this many outputs scores a vocabulary. If their number is no multiple of 8, as GPT-2's 50,257 words, products
# use kernels of old GPUs: 375 ms for a round of ten clients on an H200, and 298 ms if it is rounded up in products.
_VOCABULARY_WIDTH, _WIDTH_STEP = 4096, 64


@dataclass
class ClientAxis:
    """The number of clients in a batch and of rows per client; shared by all layers of a packed model."""

    clients: int = 1
    rows: int = 1
    last_cast: CastResult | None = None
    projections: Projections | None = None
    grad_targets: dict[int, GradTarget] = field(default_factory=dict)  # by the id of the parameter

    def split(self, x: Tensor, layer: str) -> Tensor:
        """Reshape [clients * rows, ...] to [clients, rows, ...]; expand [1, ...], which all rows share.

        Other sizes are rejected rather than guessed.
        """
        total = self.clients * self.rows
        if x.dim() and x.shape[0] == total:
            return x.reshape(self.clients, self.rows, *x.shape[1:])
        if x.dim() >= 2 and x.shape[0] == 1:
            return x.expand(self.clients, *x.shape).contiguous()
        raise NotPackable(
            f"{layer} got shape {tuple(x.shape)}; expected {total} rows ({self.clients} clients × {self.rows}) or 1"
        )

    def merge(self, y: Tensor) -> Tensor:
        """Reshape [clients, rows or 1, ...] to [clients * rows, ...]."""
        return y.expand(-1, self.rows, *y.shape[2:]).flatten(0, 1)

    def take_projection(self, layer: nn.Module, x: Tensor) -> Tensor | None:
        """Return the output of a layer for this input, if it was computed together with others."""
        if self.projections is None or self.projections.source is not x:
            return None
        return self.projections.outputs.pop(id(layer), None)

    def cast(self, x: Tensor, split: Tensor, dtype: torch.dtype) -> Tensor:
        """Cast `split`, which is `x` in another shape.

        Consecutive layers often read the same input: it is cast once.
        """
        if x.dtype == dtype or x.is_inference():  # inference tensors have no version counter
            return split.to(dtype)
        if self.last_cast is not None:
            source, version, result = self.last_cast
            same_grad = result.requires_grad == (x.requires_grad and torch.is_grad_enabled())
            if source is x and version == x._version and result.dtype == dtype and same_grad:
                return result.view(split.shape)
        self.last_cast = CastResult(x, x._version, split.to(dtype))
        return self.last_cast.result


class _BatchedLinear(torch.autograd.Function):
    """x @ w + bias for every client, with x [clients, rows, in] and w [clients, in, out].

    With `transposed`, `weight` is [clients, out, in]. Autograd would return the gradient of the transpose as a
    transposed tensor too, and that would be copied once more for every layer and step.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, transposed: bool, targets: GradTargets
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.transposed, ctx.has_bias, ctx.targets = transposed, bias is not None, targets
        w = weight.transpose(1, 2) if transposed else weight
        if bias is None:
            return torch.bmm(x, w)
        kernels = kernels_for(x)
        if kernels is None:
            return torch.baddbmm(bias.unsqueeze(1), x, w)
        output: Tensor = kernels.broadcast_bias(bias, x.shape[1])
        return output.baddbmm_(x, w)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        (grad,), (x, weight) = grads, ctx.saved_tensors
        needs_x, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        grad_x = torch.bmm(grad, weight if ctx.transposed else weight.transpose(1, 2)) if needs_x else None
        left, right = (grad, x) if ctx.transposed else (x, grad)
        weight_target, bias_target = ctx.targets
        grad_weight = _product(left.transpose(1, 2), right, weight_target) if needs_weight else None
        grad_bias = _product(_row_of_ones(grad), grad, bias_target) if needs_bias and ctx.has_bias else None
        return grad_x, grad_weight, None if grad_bias is None else grad_bias.squeeze(1), None, None


def _product(left: Tensor, right: Tensor, target: GradTarget | None) -> Tensor | None:
    """Return left @ right for every client, or write it to the target."""
    if target is None:
        return torch.bmm(left, right)
    target.write_product(left, right)
    return None


class _BatchedLayerNorm(torch.autograd.Function):
    """Layer normalization with weight and bias per client: x is [clients, rows, width].

    Autograd needs twice the passes over the rows: separate ones for weight and bias, in both directions.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        normalized, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], None, None, eps)
        ctx.save_for_backward(x, normalized, mean, rstd, weight)
        return torch.addcmul(bias.unsqueeze(1), normalized, weight.unsqueeze(1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        (grad,), (x, normalized, mean, rstd, weight) = grads, ctx.saved_tensors
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        grad_x = None
        if needs_x:
            outer = grad * weight.unsqueeze(1)
            mask = [True, False, False]
            grad_x = torch.ops.aten.native_layer_norm_backward(outer, x, x.shape[-1:], mean, rstd, None, None, mask)[0]
        grad_weight = sum_rows(grad * normalized) if needs_weight else None
        return grad_x, grad_weight, sum_rows(grad) if needs_bias else None, None


def sum_rows(x: Tensor) -> Tensor:
    """Sum [clients, rows, width] over rows, as a matrix product: 1.1 to 2.6 times as fast as `sum` on an H200."""
    return torch.bmm(_row_of_ones(x), x).squeeze(1)


def _row_of_ones(x: Tensor) -> Tensor:
    return x.new_ones(x.shape[0], 1, x.shape[1])


class PackedLinear(nn.Linear):
    client_axis: ClientAxis

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 2:  # frozen weight, trained bias: one product for all clients
            y = self.client_axis.split(F.linear(x, self.weight), "Linear")
            return self.client_axis.merge(y + _align_bias(self.bias, y))
        projection = self.client_axis.take_projection(self, x)
        if projection is not None:
            return projection
        return packed_linear(self.client_axis, x, self.weight, self.bias, transposed=True)


class PackedConv1D(nn.Module):
    """Mixed in before the Conv1D of transformers, which stores the transpose of a Linear's weight."""

    client_axis: ClientAxis
    weight: nn.Parameter
    bias: nn.Parameter

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 2:
            y = self.client_axis.split(x @ self.weight, "Conv1D")
            return self.client_axis.merge(y + _align_bias(self.bias, y))
        return packed_linear(self.client_axis, x, self.weight, self.bias, transposed=False)


class PackedEmbedding(nn.Embedding):
    client_axis: ClientAxis

    def forward(self, ids: Tensor) -> Tensor:
        ids = self.client_axis.split(ids, "Embedding")
        is_padding = None if self.padding_idx is None else ids == self.padding_idx
        target = self.client_axis.grad_targets.get(id(self.weight))
        return self.client_axis.merge(embed_per_client(self.weight, ids, is_padding, target))


class PackedLayerNorm(nn.LayerNorm):
    client_axis: ClientAxis

    def forward(self, x: Tensor) -> Tensor:
        clients, width = self.client_axis.clients, self.normalized_shape[-1]
        if self.normalized_shape != (width,):
            raise NotPackable(f"LayerNorm normalizes {self.normalized_shape}; expected only the last axis")
        split = self.client_axis.split(x, "LayerNorm")
        weight = self.weight.expand(clients, width)  # a frozen weight has no client axis
        bias = weight.new_zeros(clients, width) if self.bias is None else self.bias.expand(clients, width)
        flat, kernels = split.reshape(clients, -1, width), kernels_for(x)
        if kernels is None or width > kernels.MAX_WIDTH:
            y: Tensor = _BatchedLayerNorm.apply(flat.to(weight.dtype), weight, bias, self.eps)  # type: ignore[no-untyped-call]
            return self.client_axis.merge(y.view(split.shape))
        device_type = x.device.type
        use_bf16 = torch.is_autocast_enabled(device_type) and torch.get_autocast_dtype(device_type) == torch.bfloat16
        targets = (self.client_axis.grad_targets.get(id(self.weight)), self.client_axis.grad_targets.get(id(self.bias)))
        y, y_bf16 = kernels.FusedLayerNorm.apply(flat, weight, bias, self.eps, use_bf16, targets)
        merged = self.client_axis.merge(y.view(split.shape))
        # A row that all clients share is cast when it is read.
        if y_bf16 is not None and y_bf16.numel() == merged.numel():
            self.client_axis.last_cast = CastResult(merged, merged._version, y_bf16)
        return merged


class PackedScale(nn.Module):
    """Mixed in before a norm with one parameter, which scales the last axis (T5, Llama).

    The norm's forward pass runs unchanged, with a weight for each row.
    """

    client_axis: ClientAxis

    @property
    def weight(self) -> Tensor:
        stacked = self._parameters["weight"]
        if stacked is None:
            raise NotPackable(f"{type(self).__name__} has no weight")
        return stacked.repeat_interleave(self.client_axis.rows, 0).unsqueeze(1)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] != self.client_axis.clients * self.client_axis.rows:
            raise NotPackable(f"{type(self).__name__} got shape {tuple(x.shape)}")
        y: Tensor = super().forward(x.reshape(x.shape[0], -1, x.shape[-1]))
        return y.view(x.shape)


class PackedPositionBias(nn.Embedding):
    """A table that is read with indices without a batch axis (relative positions). Clients share the last axis."""

    def forward(self, ids: Tensor) -> Tensor:
        return embed(self.weight.transpose(0, 1).flatten(1), ids)  # [query, key, clients * heads]


# Methods that read a table without a batch axis. A leaf layer cannot detect that.
POSITION_BIAS_METHODS = {
    "T5Attention": "compute_bias",
    "MT5Attention": "compute_bias",
    "MPNetEncoder": "compute_position_bias",
}
PACKED_CLASSES: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: PackedLinear,
    nn.Embedding: PackedEmbedding,
    nn.LayerNorm: PackedLayerNorm,
}


def install_packed_layers(module: nn.Module, client_axis: ClientAxis, stacked: Mapping[int, nn.Parameter]) -> None:
    """Replace the class and the parameters of every trained leaf layer.

    `stacked` maps the id of each original parameter to its stacked replacement: by id, because a tied parameter has
    several names.
    """
    covered: set[int] = set()
    for submodule in list(module.modules()):
        covered |= _pack_position_bias(submodule, client_axis, stacked)
    reasons: dict[int, str] = {}
    for path, submodule in module.named_modules():
        own = {n: p for n, p in submodule._parameters.items() if p is not None and id(p) in stacked}
        if own and not isinstance(submodule, PackedPositionBias):
            try:
                submodule.__class__ = _packed_class(submodule, own)
                submodule.client_axis = client_axis
                covered |= {id(p) for p in own.values()}
            except NotPackable as reason:  # harmless if the parameter is tied to one of a leaf (BERT's vocabulary bias)
                reasons |= {id(p): f"{path}: {reason}" for p in own.values()}
        for name, p in own.items():
            submodule._parameters[name] = stacked[id(p)]
    if uncovered := [reason for key, reason in reasons.items() if key not in covered]:
        raise NotPackable(uncovered[0])


def params_used_only_in_products(module: nn.Module) -> set[int]:
    """Return the ids of parameters that only packed linear layers read."""
    only_products: dict[int, bool] = {}
    for submodule in module.modules():
        for p in submodule._parameters.values():
            if p is not None:
                is_linear = isinstance(submodule, PackedLinear | PackedConv1D)
                only_products[id(p)] = only_products.get(id(p), True) and is_linear
    return {key for key, only in only_products.items() if only}


def _pack_position_bias(submodule: nn.Module, client_axis: ClientAxis, stacked: Mapping[int, nn.Parameter]) -> set[int]:
    method = POSITION_BIAS_METHODS.get(type(submodule).__name__)
    table = getattr(submodule, "relative_attention_bias", None)
    if method is None or not isinstance(table, nn.Embedding) or id(table.weight) not in stacked:
        return set()
    parameter_id = id(table.weight)
    table.__class__ = PackedPositionBias
    device = stacked[parameter_id].device
    setattr(submodule, method, partial(_position_bias_rows, getattr(submodule, method), client_axis, device))
    return {parameter_id}


def _position_bias_rows(
    method: Callable[..., Tensor], client_axis: ClientAxis, device: torch.device, /, *args: Any, **options: Any
) -> Tensor:
    """Reshape [1, clients * heads, query, key] to [clients * rows, heads, query, key]."""
    args = tuple(a[:1] if isinstance(a, Tensor) and a.dim() == 3 else a for a in args)  # MPNet expands to its rows
    with device:  # some versions of MPNet make positions on the host, and no CUDA graph can copy them
        bias = method(*args, **options)[0]
    return client_axis.merge(bias.view(client_axis.clients, -1, *bias.shape[1:]).unsqueeze(1))


def _packed_class(leaf: nn.Module, own: Mapping[str, nn.Parameter]) -> type[nn.Module]:
    """Return the packed class of a leaf.

    For a subclass of a leaf, the packed class comes after it in the MRO, where `super().forward` finds it (BART's
    embeddings).
    """
    cls = type(leaf)
    for plain, packed in PACKED_CLASSES.items():
        if isinstance(leaf, plain):
            return packed if cls is plain else type(f"Packed{cls.__name__}", (cls, packed), {})
    if cls.__name__ == "Conv1D":
        return type("PackedConv1D", (PackedConv1D, cls), {})
    only_weight = set(own) == {"weight"} == set(dict(leaf.named_parameters(recurse=False)))
    if only_weight and own["weight"].dim() == 1 and "Norm" in cls.__name__:
        return type(f"Packed{cls.__name__}", (PackedScale, cls), {})
    raise NotPackable(f"{cls.__name__} has parameters {sorted(own)} and no packed version")


def packed_linear(
    client_axis: ClientAxis,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    transposed: bool,
    grad_targets: Mapping[int, GradTarget] | None = None,
) -> Tensor:
    """Multiply the rows of each client by its weight. Gradients go to these targets, or to those of the client axis."""
    leaves = (weight, bias)
    all_targets = client_axis.grad_targets if grad_targets is None else grad_targets
    if bias is not None and bias.dim() == 1:  # frozen bias, trained weight
        bias = bias.expand(client_axis.clients, -1)
    split = client_axis.split(x, "a linear layer")
    flat = split.flatten(1, -2) if split.dim() > 2 else split.unsqueeze(1)
    if torch.is_autocast_enabled(x.device.type):  # autocast does not look inside a custom autograd function
        dtype = torch.get_autocast_dtype(x.device.type)
        flat = client_axis.cast(x, flat, dtype)
        weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
    width = weight.shape[1]  # the number of outputs, if transposed
    is_padded = transposed and width >= _VOCABULARY_WIDTH and width % 8 > 0
    if is_padded:
        padding = -width % _WIDTH_STEP
        weight, bias = F.pad(weight, (0, 0, 0, padding)), None if bias is None else F.pad(bias, (0, padding))
    # A leaf that is cast or padded here gets its gradient from autograd, in its own type.
    targets = tuple(
        all_targets.get(id(leaf)) if leaf is used else None for leaf, used in zip(leaves, (weight, bias), strict=True)
    )
    y: Tensor = _BatchedLinear.apply(flat, weight, bias, transposed, targets)  # type: ignore[no-untyped-call]
    y = y[..., :width] if is_padded else y
    return client_axis.merge(y.view(*split.shape[:-1], y.shape[-1]))


def _align_bias(bias: Tensor, y: Tensor) -> Tensor:
    return bias.view(bias.shape[0], *[1] * (y.dim() - 2), bias.shape[-1])
