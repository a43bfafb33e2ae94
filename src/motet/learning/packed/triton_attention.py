"""Attention over short texts as one Triton kernel per direction.

torch's kernels work through a text in tiles and are made for long ones. A text of up to 128 tokens is one tile: a program
computes one head of one text, and its scores never leave the registers. The backward pass needs no second kernel for the
gradients of the keys, and adds nothing atomically, so that it is the same in every run.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from motet.learning.packed.adjacent_tensors import join_adjacent
from motet.learning.packed.triton_kernels import on_device_of

MAX_TOKENS, MAX_TOKENS_FLOAT32, MAX_WIDTH = 128, 64, 128  # of a text, and of a head: what a program can hold
_BLOCK_KEYS = 64  # keys that the backward pass holds at once


@triton.jit
def _valid_pairs(  # type: ignore[no-untyped-def]
    mask, text, query, key, tokens, mask_text, mask_query, mask_key, has_mask: tl.constexpr, is_causal: tl.constexpr
):
    """Return which keys a query may read, [queries, keys]."""
    valid = (query < tokens)[:, None] & (key < tokens)[None, :]
    if is_causal:
        valid = valid & (key[None, :] <= query[:, None])
    if has_mask:
        offset = text * mask_text + query[:, None] * mask_query + key[None, :] * mask_key
        valid = valid & (tl.load(mask + offset, mask=valid, other=0) != 0)
    return valid


@triton.jit
def _attention_forward(  # type: ignore[no-untyped-def]
    q, k, v, mask, out, log_sums, heads, tokens, width, scale,
    q_text, q_head, q_token, k_text, k_head, k_token, v_text, v_head, v_token, mask_text, mask_query, mask_key,
    has_mask: tl.constexpr, is_causal: tl.constexpr, precision: tl.constexpr,
    tile_tokens: tl.constexpr, tile_width: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    text, head = (program // heads).to(tl.int64), (program % heads).to(tl.int64)
    token, column = tl.arange(0, tile_tokens), tl.arange(0, tile_width)
    inside = (token < tokens)[:, None] & (column < width)[None, :]
    queries = tl.load(q + text * q_text + head * q_head + token[:, None] * q_token + column[None, :], inside, 0.0)
    keys = tl.load(k + text * k_text + head * k_head + token[:, None] * k_token + column[None, :], inside, 0.0)
    values = tl.load(v + text * v_text + head * v_head + token[:, None] * v_token + column[None, :], inside, 0.0)
    valid = _valid_pairs(mask, text, token, token, tokens, mask_text, mask_query, mask_key, has_mask, is_causal)
    scores = tl.where(valid, tl.dot(queries, tl.trans(keys), input_precision=precision) * scale, float("-inf"))
    largest = tl.max(scores, 1)
    largest = tl.where(largest == float("-inf"), 0.0, largest)  # a query without keys gives 0, as in torch
    weights = tl.where(valid, tl.exp(scores - largest[:, None]), 0.0)
    total = tl.sum(weights, 1)
    total = tl.where(total == 0.0, 1.0, total)
    y = tl.dot(weights.to(values.dtype), values, input_precision=precision) / total[:, None]
    offset = (text * tokens + token[:, None]) * heads * width + head * width + column[None, :]
    tl.store(out + offset, y.to(out.dtype.element_ty), inside)
    tl.store(log_sums + program * tokens + token, largest + tl.log(total), token < tokens)


@triton.jit
def _attention_backward(  # type: ignore[no-untyped-def]
    q, k, v, mask, out, log_sums, grad, grad_q, grad_k, grad_v, grad_token, heads, tokens, width, scale,
    q_text, q_head, q_token, k_text, k_head, k_token, v_text, v_head, v_token, mask_text, mask_query, mask_key,
    has_mask: tl.constexpr, is_causal: tl.constexpr, precision: tl.constexpr,
    tile_tokens: tl.constexpr, tile_width: tl.constexpr, block_keys: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    text, head = (program // heads).to(tl.int64), (program % heads).to(tl.int64)
    token, column = tl.arange(0, tile_tokens), tl.arange(0, tile_width)
    inside = (token < tokens)[:, None] & (column < width)[None, :]
    offset = (text * tokens + token[:, None]) * heads * width + head * width + column[None, :]
    queries = tl.load(q + text * q_text + head * q_head + token[:, None] * q_token + column[None, :], inside, 0.0)
    grads = tl.load(grad + offset, inside, 0.0)
    outputs = tl.load(out + offset, inside, 0.0)
    projection = tl.sum(grads.to(tl.float32) * outputs.to(tl.float32), 1)
    log_sum = tl.load(log_sums + program * tokens + token, token < tokens, 0.0)
    query_grads = tl.zeros((tile_tokens, tile_width), tl.float32)
    for start in tl.static_range(0, tile_tokens, block_keys):
        key = start + tl.arange(0, block_keys)
        exists = (key < tokens)[:, None] & (column < width)[None, :]
        keys = tl.load(k + text * k_text + head * k_head + key[:, None] * k_token + column[None, :], exists, 0.0)
        values = tl.load(v + text * v_text + head * v_head + key[:, None] * v_token + column[None, :], exists, 0.0)
        valid = _valid_pairs(mask, text, token, key, tokens, mask_text, mask_query, mask_key, has_mask, is_causal)
        scores = tl.dot(queries, tl.trans(keys), input_precision=precision) * scale
        weights = tl.where(valid, tl.exp(scores - log_sum[:, None]), 0.0)
        weight_grads = tl.dot(grads, tl.trans(values), input_precision=precision)
        score_grads = (weights * (weight_grads - projection[:, None]) * scale).to(queries.dtype)
        value_grads = tl.dot(tl.trans(weights.to(grads.dtype)), grads, input_precision=precision)
        key_grads = tl.dot(tl.trans(score_grads), queries, input_precision=precision)
        query_grads += tl.dot(score_grads, keys, input_precision=precision)
        key_offset = (text * tokens + key[:, None]) * grad_token + head * width + column[None, :]
        tl.store(grad_v + key_offset, value_grads.to(grad_v.dtype.element_ty), exists)
        tl.store(grad_k + key_offset, key_grads.to(grad_k.dtype.element_ty), exists)
    query_offset = (text * tokens + token[:, None]) * grad_token + head * width + column[None, :]
    tl.store(grad_q + query_offset, query_grads.to(grad_q.dtype.element_ty), inside)


class ShortAttention(torch.autograd.Function):
    """Attention of q, k and v [texts, heads, tokens, width] with an optional mask; returns [texts, tokens, heads, width].

    `mask` is boolean and has one axis for all heads, [texts or 1, 1, queries or 1, keys]: True where a query may read a key.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, is_causal: bool
    ) -> Tensor:
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        texts, heads, tokens, width = q.shape
        strides = [stride for x in (q, k, v) for stride in x.stride()[:3]]
        strides += [0, 0, 0] if mask is None else _mask_strides(mask, texts, tokens)
        out = q.new_empty(texts, tokens, heads, width)
        log_sums = q.new_empty((texts, heads, tokens), dtype=torch.float32)
        options = _options(q, mask, is_causal)
        with on_device_of(q):
            _attention_forward[(texts * heads,)](
                q, k, v, mask, out, log_sums, heads, tokens, width, scale, *strides, **options
            )
        ctx.save_for_backward(q, k, v, mask, out, log_sums)
        ctx.scale, ctx.strides, ctx.options = scale, strides, options
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (q, k, v, mask, out, log_sums) = grads, ctx.saved_tensors
        texts, heads, tokens, width = q.shape
        # Side by side if q, k and v are: then they are the gradient of one product.
        joined = 1 if join_adjacent((q, k, v), 1) is None else 3
        gradients = [
            x for _ in range(3 // joined) for x in out.new_empty(texts, tokens, joined * heads, width).split(heads, 2)
        ]
        block_keys = min(_BLOCK_KEYS, ctx.options["tile_tokens"])
        with on_device_of(q):
            _attention_backward[(texts * heads,)](
                q, k, v, mask, out, log_sums, grad.contiguous(), *gradients, gradients[0].stride(1), heads, tokens, width,
                ctx.scale, *ctx.strides, **ctx.options, block_keys=block_keys,
            )  # fmt: skip
        return *(x.transpose(1, 2) for x in gradients), None, None, None


def supports(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float = 0.0) -> bool:
    """True if the kernels can compute attention with these inputs."""
    tokens, width = q.shape[-2:]
    fits = tokens <= (MAX_TOKENS if q.dtype == torch.bfloat16 else MAX_TOKENS_FLOAT32) and width <= MAX_WIDTH
    same = (
        q.shape == k.shape == v.shape and q.dtype == k.dtype == v.dtype and q.dtype in (torch.bfloat16, torch.float32)
    )
    plain_mask = mask is None or (mask.dtype == torch.bool and mask.dim() == 4 and mask.shape[1] == 1)
    return bool(fits and same and plain_mask and q.numel() and not dropout)


def probe(device: torch.device) -> None:
    """Compile and run the kernels once. Raises whatever error that causes."""
    q, k, v = (torch.ones(1, 1, 16, 16, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    with torch.enable_grad():
        ShortAttention.apply(q, k, v, None, 1.0, False).sum().backward()  # type: ignore[no-untyped-call]


def _mask_strides(mask: Tensor, texts: int, tokens: int) -> list[int]:
    stride = mask.expand(texts, 1, tokens, tokens).stride()
    return [stride[0], stride[2], stride[3]]


def _options(q: Tensor, mask: Tensor | None, is_causal: bool) -> dict[str, Any]:
    tile_tokens = max(16, triton.next_power_of_2(q.shape[2]))
    return {
        "has_mask": mask is not None,
        "is_causal": is_causal,
        "precision": "ieee",  # for float32; products of bfloat16 are exact
        "tile_tokens": tile_tokens,
        "tile_width": max(16, triton.next_power_of_2(q.shape[3])),
        "num_warps": 8 if tile_tokens > 64 else 4,
    }
