"""Codecs: compress or clip parameters before they are sent. A table of codecs, and chains of them."""

from __future__ import annotations

from collections.abc import Callable

from motet.codecs.chain import Channel, Codec, CodecChain
from motet.codecs.clip import clip
from motet.codecs.half_precision import bfloat16, float16
from motet.codecs.quantize import int4, int8
from motet.codecs.top_k import top_k
from motet.core.plugins import Registry

CODECS: dict[str, Callable[..., Codec]] = {
    "float16": float16,
    "bfloat16": bfloat16,
    "int8": int8,
    "int4": int4,
    "top_k": top_k,
    "clip": clip,
}
CODEC_REGISTRY = Registry("motet.codecs", CODECS)

__all__ = [
    "CODECS",
    "CODEC_REGISTRY",
    "Channel",
    "Codec",
    "CodecChain",
    "bfloat16",
    "clip",
    "float16",
    "int4",
    "int8",
    "top_k",
]
