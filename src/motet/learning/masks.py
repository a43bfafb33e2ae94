"""One question that transformers asks in every forward pass, answered once for all: is anything masked?

The answer decides whether a mask is built, and on a GPU each asking waits for the device. Inside `masks_always_built` the
library believes it is being traced and builds the mask without looking.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import masking_utils as _masking

masking_utils: Any = _masking


@contextmanager
def masks_always_built() -> Iterator[None]:
    asked = masking_utils.is_tracing
    masking_utils.is_tracing = lambda tensor=None: True
    try:
        yield
    finally:
        masking_utils.is_tracing = asked
