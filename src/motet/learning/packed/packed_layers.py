"""Twins of leaf layers: the leaf's own class with another forward, holding a row of parameters for every client.

Attention, activations and a model's own forward code stay as they are: they see one batch in which the clients' rows stand
side by side. Only layers that hold trained parameters must know whose rows are whose. A frozen leaf keeps its plain class.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from motet.core.errors import first_line


class NotPackable(TypeError):  # noqa: N818 - no error for a user: the model is run another way
    """A model, or an input of it, that the twins do not cover."""


@dataclass
class ClientAxis:
    """How many clients stand side by side, and how many rows each brings; shared by all twins of a pack."""

    clients: int = 1
    rows: int = 1
    last_rounded: tuple[Tensor, int, Tensor] | None = (
        None  # for a product: what it was, its version, and what it became
    )

    def split(self, x: Tensor, what: str) -> Tensor:
        """[clients·rows, …] → [clients, rows, …]; a [1, …] input belongs to every row. Other sizes are not guessed at."""
        n = self.clients * self.rows
        if x.dim() and x.shape[0] == n:
            return x.reshape(self.clients, self.rows, *x.shape[1:])
        if x.dim() >= 2 and x.shape[0] == 1:
            return x.expand(self.clients, *x.shape).contiguous()
        raise NotPackable(
            f"{what} was given {tuple(x.shape)}; expected {n} rows ({self.clients} clients × {self.rows}) or 1"
        )

    def join(self, y: Tensor) -> Tensor:
        """[clients, rows or 1, …] → [clients·rows, …]."""
        return y.expand(-1, self.rows, *y.shape[2:]).flatten(0, 1)

    def rounded(self, x: Tensor, split: Tensor, kind: torch.dtype) -> Tensor:
        """`split`, which is x with another shape, for a product. Several in a row read the same: it is rounded once."""
        if x.dtype == kind or x.is_inference():  # such a tensor does not say whether it has changed
            return split.to(kind)
        if self.last_rounded is not None:
            same, version, found = self.last_rounded
            follows = found.requires_grad == (x.requires_grad and torch.is_grad_enabled())
            if same is x and version == x._version and found.dtype == kind and follows:
                return found.view(split.shape)
        self.last_rounded = (x, x._version, split.to(kind))
        return self.last_rounded[2]


class _Products(torch.autograd.Function):
    """x·w of every client, [clients, rows, in] and [clients, in, out], plus a bias.

    Where w is the transpose of a layer's weight, autograd's own gradient of it would be a transpose too, and would be copied
    once more for every layer and step.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, turned: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.turned, ctx.biased = turned, bias is not None
        w = weight.transpose(1, 2) if turned else weight
        if bias is None:
            return torch.bmm(x, w)
        fused = kernels_for(x)
        return (
            torch.baddbmm(bias.unsqueeze(1), x, w) if fused is None else fused.filled(bias, x.shape[1]).baddbmm_(x, w)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        (gradient,), (x, weight) = gradients, ctx.saved_tensors
        into_x, into_weight, into_bias, _ = ctx.needs_input_grad
        to_x = torch.bmm(gradient, weight if ctx.turned else weight.transpose(1, 2)) if into_x else None
        left, right = (gradient, x) if ctx.turned else (x, gradient)
        to_weight = torch.bmm(left.transpose(1, 2), right) if into_weight else None
        return to_x, to_weight, row_sums(gradient) if into_bias and ctx.biased else None, None


class _Norms(torch.autograd.Function):
    """Rows brought to mean 0 and deviation 1, then scaled and moved as each client says: [clients, rows, width].

    Autograd's own way takes twice the passes over the rows: one to scale and one to move, and in their gradients.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        y, mean, scale = torch.native_layer_norm(x, x.shape[-1:], None, None, eps)
        ctx.save_for_backward(x, y, mean, scale, weight)
        return torch.addcmul(bias.unsqueeze(1), y, weight.unsqueeze(1))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        (gradient,), (x, y, mean, scale, weight) = gradients, ctx.saved_tensors
        into_x, into_weight, into_bias, _ = ctx.needs_input_grad
        to_x = None
        if into_x:
            outer = gradient * weight.unsqueeze(1)
            wanted = [True, False, False]
            to_x = torch.ops.aten.native_layer_norm_backward(outer, x, x.shape[-1:], mean, scale, None, None, wanted)[0]
        to_weight = row_sums(gradient * y) if into_weight else None
        return to_x, to_weight, row_sums(gradient) if into_bias else None, None


@cache
def _kernels(device: torch.device) -> ModuleType | None:
    try:
        found = import_module("motet.learning.packed.triton_kernels")
        found.try_out(device)
    except ImportError:  # Triton comes with torch for GPUs, but not on every system
        return None
    except Exception as error:  # it compiles on this machine: a compiler or its headers may be missing
        logging.getLogger("motet").warning(
            "layer norms take longer, since Triton cannot compile for %s (%s)", device, first_line(error)
        )
        return None
    return found


def kernels_for(x: Tensor) -> ModuleType | None:
    """Our own kernels, where there are any for such a tensor: its rows in one pass instead of several."""
    return _kernels(x.device) if x.is_cuda else None


def row_sums(x: Tensor) -> Tensor:
    """[clients, rows, width] → [clients, width], as a product: on an H200 1.1 to 2.6 times as fast as the sum."""
    return torch.bmm(x.new_ones(x.shape[0], 1, x.shape[1]), x).squeeze(1)


class PackedLinear(nn.Linear):
    crowd: ClientAxis

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 2:  # a frozen weight under a trained bias: one product for all, a bias a client
            y = self.crowd.split(F.linear(x, self.weight), "Linear")
            return self.crowd.join(y + _beside(self.bias, y))
        return _affine(self.crowd, x, self.weight, self.bias, turned=True)


class PackedConv1D(nn.Module):
    """Stands before transformers' Conv1D, whose weight is the transpose of a Linear's."""

    crowd: ClientAxis
    weight: nn.Parameter
    bias: nn.Parameter

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 2:
            y = self.crowd.split(x @ self.weight, "Conv1D")
            return self.crowd.join(y + _beside(self.bias, y))
        return _affine(self.crowd, x, self.weight, self.bias, turned=False)


class PackedEmbedding(nn.Embedding):
    crowd: ClientAxis

    def forward(self, ids: Tensor) -> Tensor:
        ids = self.crowd.split(ids, "Embedding")
        return self.crowd.join(
            read_tables(self.weight, ids, None if self.padding_idx is None else ids == self.padding_idx)
        )


class PackedLayerNorm(nn.LayerNorm):
    crowd: ClientAxis

    def forward(self, x: Tensor) -> Tensor:
        clients, width = self.crowd.clients, self.normalized_shape[-1]
        if self.normalized_shape != (width,):
            raise NotPackable(f"LayerNorm is over {self.normalized_shape}; expected the last axis alone")
        split = self.crowd.split(x, "LayerNorm")
        weight = self.weight.expand(clients, width)  # or one that is frozen, beside a trained bias
        bias = weight.new_zeros(clients, width) if self.bias is None else self.bias.expand(clients, width)
        flat, fused = split.reshape(clients, -1, width), kernels_for(x)
        if fused is None or width > fused.WIDEST:
            y: Tensor = _Norms.apply(flat.to(weight.dtype), weight, bias, self.eps)  # type: ignore[no-untyped-call]
            return self.crowd.join(y.view(split.shape))
        half = torch.is_autocast_enabled(x.device.type) and torch.get_autocast_dtype(x.device.type) == torch.bfloat16
        y, rounded = fused.FusedLayerNorm.apply(flat, weight, bias, self.eps, half)
        joined = self.crowd.join(y.view(split.shape))
        if (
            rounded is not None and rounded.numel() == joined.numel()
        ):  # one row that stands for all is rounded when it is read
            self.crowd.last_rounded = (joined, joined._version, rounded)
        return joined


class PackedScale(nn.Module):
    """Stands before any norm whose one parameter scales the last axis (T5, Llama): its own code, a row a client."""

    crowd: ClientAxis

    @property
    def weight(self) -> Tensor:
        stacked = self._parameters["weight"]
        if stacked is None:
            raise NotPackable(f"{type(self).__name__} has no weight")
        return stacked.repeat_interleave(self.crowd.rows, 0).unsqueeze(1)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] != self.crowd.clients * self.crowd.rows:
            raise NotPackable(f"{type(self).__name__} was given {tuple(x.shape)}")
        y: Tensor = super().forward(x.reshape(x.shape[0], -1, x.shape[-1]))
        return y.view(x.shape)


class PackedBias(nn.Embedding):
    """A table read with indices that have no batch axis (relative positions): clients side by side on the last axis."""

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight.transpose(0, 1).flatten(1))  # [q, k, clients·heads]


# Methods that read a table without a batch axis: the one thing a leaf cannot know.
BIASES = {"T5Attention": "compute_bias", "MT5Attention": "compute_bias", "MPNetEncoder": "compute_position_bias"}
TWINS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: PackedLinear,
    nn.Embedding: PackedEmbedding,
    nn.LayerNorm: PackedLayerNorm,
}


def install_packed_layers(module: nn.Module, crowd: ClientAxis, leaves: Mapping[int, nn.Parameter]) -> None:
    """Give every leaf its twin and its stacked parameters. `leaves`: by the identity of the tensor they replace, since
    a tied tensor has several names."""
    covered: set[int] = set()
    for part in list(module.modules()):
        covered |= _set_bias(part, crowd, leaves)
    bare: dict[int, str] = {}
    for path, part in module.named_modules():
        own = {n: p for n, p in part._parameters.items() if p is not None and id(p) in leaves}
        if own and not isinstance(part, PackedBias):
            try:
                part.__class__ = _twin_class(part, own)
                part.crowd = crowd
                covered |= {id(p) for p in own.values()}
            except (
                NotPackable
            ) as why:  # harmless if the same tensor also lives in a leaf (BERT's bias of the vocabulary)
                bare |= {id(p): f"{path}: {why}" for p in own.values()}
        for name, p in own.items():
            part._parameters[name] = leaves[id(p)]
    if left := [why for key, why in bare.items() if key not in covered]:
        raise NotPackable(left[0])


def in_products_only(module: nn.Module) -> set[int]:
    """The parameters, by identity, that are read by products alone."""
    found: dict[int, bool] = {}
    for part in module.modules():
        for p in part._parameters.values():
            if p is not None:
                found[id(p)] = found.get(id(p), True) and isinstance(part, PackedLinear | PackedConv1D)
    return {mark for mark, only in found.items() if only}


def read_tables(tables: Tensor, ids: Tensor, padding: Tensor | None) -> Tensor:
    """Each client's ids [clients, …] in its own table [clients, words, width]; a padding row gets no gradient."""
    clients, words, width = tables.shape
    first = torch.arange(0, clients * words, words, device=ids.device).view(clients, *[1] * (ids.dim() - 1))
    y = F.embedding(ids + first, tables.reshape(clients * words, width))
    return y if padding is None else torch.where(padding.unsqueeze(-1), y.detach(), y)


def _set_bias(part: nn.Module, crowd: ClientAxis, leaves: Mapping[int, nn.Parameter]) -> set[int]:
    method, table = BIASES.get(type(part).__name__), getattr(part, "relative_attention_bias", None)
    if method is None or not isinstance(table, nn.Embedding) or id(table.weight) not in leaves:
        return set()
    tensor = id(table.weight)
    table.__class__ = PackedBias
    setattr(part, method, partial(_rows_of_bias, getattr(part, method), crowd))
    return {tensor}


def _rows_of_bias(method: Callable[..., Tensor], crowd: ClientAxis, *args: Any, **options: Any) -> Tensor:
    """[1, clients·heads, q, k] → [clients·rows, heads, q, k]."""
    args = tuple(a[:1] if isinstance(a, Tensor) and a.dim() == 3 else a for a in args)  # MPNet expands to its rows
    sides = method(*args, **options)[0]
    return crowd.join(sides.view(crowd.clients, -1, *sides.shape[1:]).unsqueeze(1))


def _twin_class(leaf: nn.Module, own: Mapping[str, nn.Parameter]) -> type[nn.Module]:
    """A twin stands behind a subclass of its leaf, where `super().forward` (BART's embeddings) finds it."""
    kind = type(leaf)
    for plain, twin in TWINS.items():
        if isinstance(leaf, plain):
            return twin if kind is plain else type(f"Packed{kind.__name__}", (kind, twin), {})
    if kind.__name__ == "Conv1D":
        return type("PackedConv1D", (PackedConv1D, kind), {})
    lone = set(own) == {"weight"} == set(dict(leaf.named_parameters(recurse=False)))
    if lone and own["weight"].dim() == 1 and "Norm" in kind.__name__:
        return type(f"Packed{kind.__name__}", (PackedScale, kind), {})
    raise NotPackable(f"{kind.__name__} holds parameters {sorted(own)} and has no twin")


def _affine(crowd: ClientAxis, x: Tensor, weight: Tensor, bias: Tensor | None, turned: bool) -> Tensor:
    if bias is not None and bias.dim() == 1:
        bias = bias.expand(crowd.clients, -1)  # a frozen bias beside a trained weight
    split = crowd.split(x, "a product")
    flat = split.flatten(1, -2) if split.dim() > 2 else split.unsqueeze(1)
    if torch.is_autocast_enabled(x.device.type):  # what autocast does for a product, which it does not see inside ours
        kind = torch.get_autocast_dtype(x.device.type)
        flat = crowd.rounded(x, flat, kind)
        weight, bias = weight.to(kind), None if bias is None else bias.to(kind)
    y: Tensor = _Products.apply(flat, weight, bias, turned)  # type: ignore[no-untyped-call]
    return crowd.join(y.view(*split.shape[:-1], -1))


def _beside(parameter: Tensor, y: Tensor) -> Tensor:
    return parameter.view(parameter.shape[0], *[1] * (y.dim() - 2), parameter.shape[-1])
