"""Attention under a mask: built without asking the device, and computed by kernels whose gradient can be trusted.

transformers asks in every forward pass whether anything is masked. The answer decides whether a mask is built, and on a GPU
each asking waits for the device. Inside `masked_attention` the library believes it is being traced and builds the mask without
looking.

cuDNN's attention, which torch prefers on an H100 or H200, has a backward pass that gives NaN under a mask where texts are 64
tokens wide, or 192, 320, …, and a row's scores are all low (pytorch issue 196678). Two of some 200 runs on GLUE ended in NaN
there. The other kernels are not known to fail so, and cuDNN's is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import masking_utils as _masking

masking_utils: Any = _masking
cuda: Any = torch.backends.cuda


@contextmanager
def masked_attention() -> Iterator[None]:
    asked, allowed = masking_utils.is_tracing, cuda.cudnn_sdp_enabled()
    masking_utils.is_tracing = lambda tensor=None: True
    cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        masking_utils.is_tracing = asked
        cuda.enable_cudnn_sdp(allowed)
