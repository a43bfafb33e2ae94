"""What is done to tensors before they travel: a table of codecs, and chains of them."""

from __future__ import annotations

from collections.abc import Callable

from motet.codecs.channel import Channel, Codec
from motet.codecs.half import BFloat16, Float16

CODECS: dict[str, Callable[[], Codec]] = {
    "float16": Float16,
    "bfloat16": BFloat16,
}

__all__ = ["CODECS", "BFloat16", "Channel", "Codec", "Float16"]
