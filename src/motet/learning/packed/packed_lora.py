"""Packed LoRA layers: one product with the frozen weight for all clients, and a low-rank update for each client.

peft computes `base(x) + scaling * B(A(x))` as separate layers. Here it is one autograd function: x is saved once, and
the low-rank terms are added in place to the outputs of the large products. The frozen weight gets no gradient.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from motet.learning.packed.packed_layers import ClientAxis, PackedLinear

_ADAPTER = "default"  # peft's name of the only adapter


class _LowRankUpdate(torch.autograd.Function):
    """y = x @ weight.T + bias + scaling * x @ a.T @ b.T, with x [clients, rows, in].

    a is [clients, rank, in] and b [clients, out, rank]. Without `weight`, only the low-rank term is computed.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, a: Tensor, b: Tensor, scaling: float
    ) -> Tensor:
        hidden = torch.bmm(x, a.transpose(1, 2))
        ctx.save_for_backward(x, weight, hidden, a, b)
        ctx.scaling = scaling
        if weight is None:
            return torch.bmm(hidden, b.transpose(1, 2)).mul_(scaling)
        return F.linear(x, weight, bias).baddbmm_(hidden, b.transpose(1, 2), alpha=scaling)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None, Tensor, Tensor, None]:
        (grad,), (x, weight, hidden, a, b) = grads, ctx.saved_tensors
        grad_hidden = torch.bmm(grad, b).mul_(ctx.scaling)
        grad_a = torch.bmm(grad_hidden.transpose(1, 2), x)
        grad_b = torch.bmm(grad.transpose(1, 2), hidden).mul_(ctx.scaling)
        grad_x = None
        if ctx.needs_input_grad[0]:
            from_weight = None if weight is None else torch.matmul(grad, weight)
            grad_x = torch.bmm(grad_hidden, a) if from_weight is None else from_weight.baddbmm_(grad_hidden, a)
        return grad_x, None, None, grad_a, grad_b, None


class PackedLora(nn.Module):
    """Mixed in before peft's LoRA layer."""

    client_axis: ClientAxis
    base_layer: nn.Module
    lora_A: nn.ModuleDict  # noqa: N815 - peft's name
    lora_B: nn.ModuleDict  # noqa: N815
    lora_dropout: nn.ModuleDict
    scaling: dict[str, float]

    def forward(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        a, b = self._weight(self.lora_A), self._weight(self.lora_B)
        dropout, base = self.lora_dropout[_ADAPTER], self.base_layer
        drops = self.training and not isinstance(dropout, nn.Identity)
        is_autocast = torch.is_autocast_enabled(x.device.type)
        dtype = torch.get_autocast_dtype(x.device.type) if is_autocast else a.dtype
        if type(base) is nn.Linear and not drops and (is_autocast or x.dtype == dtype):
            bias: Tensor | None = base.bias
            return self._adapt(x, base.weight.to(dtype), None if bias is None else bias.to(dtype), a, b, dtype)
        y: Tensor = base(x, *args, **options)
        return y + self._adapt(dropout(x), None, None, a, b, dtype).to(y.dtype)

    def _adapt(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, a: Tensor, b: Tensor, dtype: torch.dtype
    ) -> Tensor:
        split = self.client_axis.split(x, "a LoRA layer")
        flat = self.client_axis.cast(x, split.flatten(1, -2), dtype)
        scaling = self.scaling[_ADAPTER]
        y: Tensor = _LowRankUpdate.apply(flat, weight, bias, a.to(dtype), b.to(dtype), scaling)  # type: ignore[no-untyped-call]
        return self.client_axis.merge(y.view(*split.shape[:-1], -1))

    @staticmethod
    def _weight(layers: nn.ModuleDict) -> Tensor:
        return torch.as_tensor(layers[_ADAPTER].weight)


def install_packed_lora(module: nn.Module, client_axis: ClientAxis) -> None:
    """Give peft's LoRA layers a packed forward pass. Call it after `install_packed_layers`."""
    for submodule in list(module.modules()):
        layer: Any = submodule
        if _is_packable(layer):
            layer.__class__ = type(f"PackedLora{type(layer).__name__}", (PackedLora, type(layer)), {})
            layer.client_axis = client_axis


def _is_packable(layer: Any) -> bool:
    """True for a LoRA layer (not DoRA) with one adapter, without biases, over a frozen layer."""
    if not hasattr(layer, "base_layer") or list(getattr(layer, "lora_A", ())) != [_ADAPTER]:
        return False
    linears = (layer.lora_A[_ADAPTER], layer.lora_B[_ADAPTER])
    is_packed = all(type(linear) is PackedLinear and linear.bias is None for linear in linears)
    is_frozen = not any(p.requires_grad for p in layer.base_layer.parameters())
    return is_packed and is_frozen and not layer.use_dora.get(_ADAPTER, False)
