"""Use kernels for short texts in models that call the attention functions of transformers: Triton's, or those of a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from motet.learning.packed import cpu_attention
from motet.learning.packed.kernel_modules import kernels_for

_UNSUPPORTED = ("position_bias", "softcap", "cache")  # options that need torch's attention


@contextmanager
def short_attention() -> Iterator[None]:
    """Inside the block, models with `sdpa` attention use the kernels where these support the inputs."""
    # Imported late because float32 on a CPU does not need it.
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    functions: Any = ALL_ATTENTION_FUNCTIONS
    functions["sdpa"] = _attention_forward
    try:
        yield
    finally:
        del functions["sdpa"]


def _attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    kernels: Any = kernels_for(query, "triton_attention") or (None if query.is_cuda else cpu_attention)
    groups = query.shape[1] // key.shape[1]
    if kernels is not None and groups > 1:  # several heads share keys and values
        keys, values = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    else:
        keys, values = key, value
    needs_torch = any(options.get(name) is not None for name in _UNSUPPORTED)
    if kernels is None or needs_torch or not kernels.supports(query, keys, values, attention_mask, dropout):
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        result: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, is_causal, **options
        )
        return result
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal) and attention_mask is None and query.shape[2] > 1
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    inputs = (query, keys, values, attention_mask, scale, causal)
    if kernels is cpu_attention:
        return cpu_attention.attend(*inputs, dropout), None
    return kernels.ShortAttention.apply(*inputs), None
