"""Attention and dropout for training in bfloat16 on a CPU.

Where a CPU multiplies in bfloat16, matrix products take half of the time, and what surrounds them takes a larger share.
torch's attention in bfloat16 takes twice the time of the products, the softmax and the dropout that it consists of, and
drawing its dropout mask takes longer than its six products. Nothing is replaced in float32, whose results must not change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

MIN_DROPOUT = 2**-8  # below, 1 / (1 - p) would be rounded to 1
MAX_TOKENS = 512  # the scores of all pairs of tokens are kept for the backward pass


def draw_dropout(shape: Sequence[int], p: float) -> Tensor:
    """Return factors in bfloat16 that are 0 with probability p, and 1 / (1 - p) otherwise.

    1 / (1 - p) is rounded, and p with it, so that the mean stays 1: for p = 0.1 to 0.0986. A factor uses 16 random bits.
    """
    size = math.prod(shape)
    words = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[:size].view(*shape)
    factor = torch.tensor(1 / (1 - p), dtype=torch.bfloat16)
    first_kept = round((1 - 1 / float(factor)) * 2**16) - 2**15
    return bits.ge_(first_kept).mul_(int(factor.view(torch.int16))).view(torch.bfloat16)


class FastDropout(nn.Module):
    """Replaces the class of a Dropout: the same distribution from other random numbers."""

    p: float

    def forward(self, x: Tensor) -> Tensor:
        return x * draw_dropout(x.shape, self.p).to(x.dtype) if self.training else x


def install_fast_dropout(module: nn.Module) -> None:
    layers: list[Any] = [m for m in module.modules() if type(m) is nn.Dropout and MIN_DROPOUT <= m.p < 1]
    for layer in layers:
        layer.__class__ = FastDropout


class _Attention(torch.autograd.Function):
    """Attention of q, k and v [texts, heads, tokens, width]. `mask` is added to the scores, and must be broadcastable."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, dropout: float) -> Tensor:
        texts, heads, queries, width = q.shape
        q, k, v = (x.reshape(texts * heads, -1, width) for x in (q, k, v))
        scores = _scaled_product(q, k.transpose(1, 2), scale)
        if mask is not None:
            scores.view(texts, heads, queries, -1).add_(mask)
        weights = torch.softmax(scores, -1)
        factors = draw_dropout(weights.shape, dropout) if dropout else None
        ctx.save_for_backward(q, k, v, weights, factors)
        ctx.scale = scale
        return torch.bmm(weights if factors is None else weights * factors, v).view(texts, heads, queries, width)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (q, k, v, weights, factors) = grads, ctx.saved_tensors
        texts, heads, _, width = grad.shape
        grad = grad.reshape(texts * heads, -1, width)
        read = weights if factors is None else weights * factors
        weight_grads = torch.bmm(grad, v.transpose(1, 2))
        if factors is not None:
            weight_grads.mul_(factors)
        score_grads = torch.ops.aten._softmax_backward_data(weight_grads, weights, -1, weights.dtype)
        gradients = (
            _scaled_product(score_grads, k, ctx.scale),
            _scaled_product(score_grads.transpose(1, 2), q, ctx.scale),
            torch.bmm(read.transpose(1, 2), grad),
        )
        return *(x.view(texts, heads, -1, width) for x in gradients), None, None, None


def _scaled_product(left: Tensor, right: Tensor, scale: float) -> Tensor:
    """Return scale * left @ right, rounded once."""
    return torch.baddbmm(left.new_zeros(1, 1, 1), left, right, beta=0, alpha=scale)


def supports(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float = 0.0) -> bool:
    """True if `attend` can compute attention with these inputs."""
    fits = q.shape[2] <= MAX_TOKENS and k.shape[2] <= MAX_TOKENS and k.shape == v.shape and q.shape[3] == k.shape[3]
    is_bf16 = q.dtype == torch.bfloat16 or torch.is_autocast_enabled("cpu")  # rotary embeddings return float32
    can_drop = not dropout or MIN_DROPOUT <= dropout < 1
    return bool(fits and is_bf16 and (mask is None or mask.dim() == 4) and q.numel() and k.numel() and can_drop)


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, is_causal: bool, dropout: float
) -> Tensor:
    """Return attention as [texts, queries, heads, width]. `mask` is added to the scores, or True for keys to read."""
    q, k, v = (x.to(torch.bfloat16) for x in (q, k, v))
    if is_causal:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril().view(1, 1, q.shape[2], k.shape[2])
    if mask is not None and mask.dtype == torch.bool:
        lowest = torch.finfo(q.dtype).min
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, lowest)
    y: Tensor = _Attention.apply(q, k, v, mask, scale, dropout)  # type: ignore[no-untyped-call]
    return y.transpose(1, 2)
