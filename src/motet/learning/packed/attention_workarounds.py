"""Workarounds for the way transformers and torch choose an attention kernel.

With a mask: transformers checks in every forward pass whether anything is masked, to decide whether to build a mask.
On a GPU that check waits for the device. Inside `masked_attention` the library believes it is being traced and always
builds the mask. Masks of eager attention (MPNet) are made without a number from the host, which some versions of the
library copy, and no CUDA graph can.

torch prefers cuDNN's attention on an H100 or H200. Its backward pass returns NaN with a mask if texts are 64 tokens
wide (or 192, 320, …) and a row's scores are all low (pytorch issue 196678). Two of some 200 runs on GLUE ended in NaN
because of it. The other kernels are not known to fail, so cuDNN's is turned off.

Without a mask: transformers looks for packed sequences, which waits for the device, and builds a causal mask while a
CUDA graph is captured. Inside `unmasked_attention` it does neither, so torch can use flash attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from motet.learning.lean_transformers import import_masking_utils

masking_utils = import_masking_utils()
cuda: Any = torch.backends.cuda


@contextmanager
def masked_attention() -> Iterator[None]:
    is_tracing, cudnn_enabled = masking_utils.is_tracing, cuda.cudnn_sdp_enabled()
    masks = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
    eager_mask = masks["eager"]
    masking_utils.is_tracing = lambda tensor=None: True
    masks["eager"] = _eager_mask
    cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        masking_utils.is_tracing, masks["eager"] = is_tracing, eager_mask
        cuda.enable_cudnn_sdp(cudnn_enabled)


@contextmanager
def unmasked_attention() -> Iterator[None]:
    """Let causal models run without a padding mask. Texts are padded on the right, so no token sees the padding."""
    is_tracing, find_packed = masking_utils.is_tracing, masking_utils.find_packed_sequence_indices
    masking_utils.is_tracing = lambda tensor=None: False
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.is_tracing, masking_utils.find_packed_sequence_indices = is_tracing, find_packed


def disable_caches(module: nn.Module) -> None:
    """Turn off caches of keys and values. They are for generation, cost memory, and do not work with vmap."""
    for submodule in module.modules():
        config: Any = getattr(submodule, "config", None)  # T5's decoder has its own
        if hasattr(config, "use_cache"):
            config.use_cache = False


def _eager_mask(*args: Any, dtype: torch.dtype = torch.float32, **options: Any) -> Tensor | None:
    """Return 0 where a token is visible, and the lowest number elsewhere. None if all are."""
    visible = masking_utils.sdpa_mask(*args, **{**options, "allow_is_causal_skip": False})
    if visible is None:
        return None
    return torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, torch.finfo(dtype).min)
