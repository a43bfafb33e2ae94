"""Blocks of encoder layers in which one kernel computes what follows a product: bias and GELU, or bias, residual and norm.

BERT and its relatives have blocks of these two forms. A block is replaced if the original gives the same output on a
random input, so no list of model families is needed. Without the kernels, or with dropout, the original runs.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from motet.learning.packed.end_tokens import install_end_token_classifier
from motet.learning.packed.kernel_modules import kernels_for
from motet.learning.packed.packed_layers import CastResult, PackedLayerNorm, PackedLinear, packed_linear
from motet.learning.packed.packed_projections import install_joint_projections


class PackedAddNorm(nn.Module):
    """Computes LayerNorm(dense(x) + residual). The class of the original block is the second parent, and its fallback."""

    dense: Any
    LayerNorm: nn.Module
    dropout: nn.Dropout

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        norm, kernels = self.LayerNorm, _kernels(self.dense, x)
        drops = self.training and self.dropout.p > 0
        if kernels is None or drops or not isinstance(norm, PackedLayerNorm) or not _is_trained(norm, residual, x):
            y: Tensor = super().forward(x, residual)
            return y
        axis, product = norm.client_axis, _product(self.dense, x)
        flat = product.view(axis.clients, -1, product.shape[-1])
        leaves = (self.dense.bias, norm.weight, norm.bias)
        targets = tuple(axis.grad_targets.get(id(leaf)) for leaf in leaves)
        y, y_bf16 = kernels.AddNorm.apply(
            flat, self.dense.bias, residual.reshape(flat.shape), norm.weight, norm.bias, norm.eps, targets
        )
        merged = y.view(product.shape)
        if y_bf16 is not None:
            axis.last_cast = CastResult(merged, merged._version, y_bf16)
        return merged


class PackedGelu(nn.Module):
    """Computes GELU(dense(x)). The class of the original block is the second parent, and its fallback."""

    dense: Any

    def forward(self, x: Tensor) -> Tensor:
        kernels = _kernels(self.dense, x)
        if kernels is None:
            y: Tensor = super().forward(x)
            return y
        axis, product = self.dense.client_axis, _product(self.dense, x)
        flat = product.view(axis.clients, -1, product.shape[-1])
        y = kernels.BiasGelu.apply(flat, self.dense.bias, axis.grad_targets.get(id(self.dense.bias)))
        return y.view(product.shape)


def install_packed_blocks(module: nn.Module) -> None:
    """Replace the blocks of a module, in place, before its layers are packed."""
    install_end_token_classifier(module)
    install_joint_projections(module)
    for block in list(module.modules()):
        children = dict(block.named_children())
        dense, norm = children.get("dense"), children.get("LayerNorm")
        if not isinstance(dense, nn.Linear) or dense.bias is None:
            continue
        if isinstance(norm, nn.LayerNorm) and "dropout" in children:
            widths = [dense.in_features, dense.out_features]
            _replace_if_equal(block, PackedAddNorm, widths, lambda b, x, residual: b.LayerNorm(b.dense(x) + residual))
        elif "intermediate_act_fn" in children:
            _replace_if_equal(block, PackedGelu, [dense.in_features], lambda b, x: F.gelu(b.dense(x)))


def _replace_if_equal(block: Any, packed: type[nn.Module], widths: list[int], formula: Callable[..., Tensor]) -> None:
    """Replace a block if it computes the formula. `widths` are those of its inputs."""
    weight, training = block.dense.weight, block.training
    generator = torch.Generator(weight.device).manual_seed(0)
    inputs = [torch.randn(2, 8, n, generator=generator, device=weight.device, dtype=weight.dtype) for n in widths]
    block.eval()
    try:
        with torch.no_grad():
            is_equal = torch.allclose(block(*inputs), formula(block, *inputs), rtol=1e-3, atol=1e-4)
    except (TypeError, ValueError, RuntimeError):  # a block with other inputs
        is_equal = False
    block.train(training)
    if is_equal:
        block.__class__ = type(f"Packed{type(block).__name__}", (packed, type(block)), {})


def _kernels(dense: Any, x: Tensor) -> ModuleType | None:
    """Return the kernels if they support this product: one with weight and bias per client, and rows per client."""
    if not isinstance(dense, PackedLinear) or dense.weight.dim() != 3 or dense.bias is None or dense.bias.dim() != 2:
        return None
    if x.dim() != 3 or x.shape[0] != dense.client_axis.clients * dense.client_axis.rows:
        return None
    return kernels_for(x, "triton_blocks")


def _product(dense: Any, x: Tensor) -> Tensor:
    return packed_linear(dense.client_axis, x, dense.weight, None, transposed=True)


def _is_trained(norm: PackedLayerNorm, residual: Tensor, x: Tensor) -> bool:
    """True if the norm has parameters per client and the residual has the rows of the product."""
    has_rows = norm.weight.dim() == 2 and norm.bias is not None and norm.bias.dim() == 2
    return has_rows and residual.shape == (*x.shape[:-1], norm.weight.shape[-1]) and norm.weight.shape[-1] <= 4096
