"""Quantize the frozen linear layers under adapters with bitsandbytes."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn

from motet.core.errors import ConfigError
from motet.core.install_hint import install_command


def quantize_adapted_layers(module: nn.Module, kind: Literal["int8", "nf4"]) -> None:
    """Replace the frozen layer under each adapter by a quantized one, in place.

    It is quantized when it moves to a GPU.
    """
    try:
        import bitsandbytes as bnb
    except ImportError:
        raise ConfigError(
            f"model.quantize is {kind}, which needs the package bitsandbytes. Run: {install_command('quantize')}"
        ) from None
    if not torch.cuda.is_available():
        raise ConfigError(
            f"model.quantize is {kind}, but this machine has no CUDA GPU, which bitsandbytes needs. Set model.quantize=none."
        )
    for submodule in module.modules():
        adapted: Any = submodule
        if isinstance(getattr(adapted, "base_layer", None), nn.Linear):
            adapted.base_layer = _quantized_linear(bnb, adapted.base_layer, kind)


def _quantized_linear(bnb: Any, layer: nn.Linear, kind: str) -> Any:
    has_bias, sizes = layer.bias is not None, (layer.in_features, layer.out_features)
    if kind == "int8":
        quantized = bnb.nn.Linear8bitLt(*sizes, bias=has_bias, has_fp16_weights=False)
        quantized.weight = bnb.nn.Int8Params(layer.weight.data, requires_grad=False, has_fp16_weights=False)
    else:
        quantized = bnb.nn.Linear4bit(*sizes, bias=has_bias, quant_type="nf4", compute_dtype=torch.bfloat16)
        quantized.weight = bnb.nn.Params4bit(layer.weight.data, requires_grad=False, quant_type="nf4")
    quantized.bias = layer.bias
    return quantized
