"""Low-rank adapters (LoRA, Hu et al. 2021) through peft: the model is shared by all and frozen, only A and B are trained.

They are put into the module itself, so that every family's anatomy, packing and export go on working on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from motet.core.errors import ConfigError
from motet.models.parameter_roles import ParameterRoles

_FRESH = ("head", "pooler")  # what stands on top begins fresh, so it is trained whole


def add_adapters(module: nn.Module, anatomy: ParameterRoles, rank: int, alpha: int | None) -> ParameterRoles:
    """Adapters of this rank at every product of the layers; everything else but the head is frozen."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise ConfigError("model.lora needs the package peft; run: pip install 'motet[adapters]'") from None
    if rank < 0:
        raise ConfigError(f"model.lora is {rank}; it is the rank of the adapters, such as 8, or 0 for none.")
    targets = [
        name
        for name, part in module.named_modules()
        if type(part).__name__ in ("Linear", "Conv1D") and ".layers." in f".{anatomy.roles.get(f'{name}.weight', '')}"
    ]
    if not targets:
        raise ConfigError(f"model.lora is {rank}, but {type(module).__name__} has no layers with products to adapt.")
    config = LoraConfig(r=rank, lora_alpha=alpha or 2 * rank, lora_dropout=0.0, target_modules=targets)
    inject_adapter_in_model(config, module)
    parts = {name: _part(name, anatomy.roles) for name, _ in module.named_parameters()}
    for name, parameter in module.named_parameters():
        parameter.requires_grad_("lora_" in name or parts[name].startswith(_FRESH))
    return ParameterRoles(parts, anatomy.embeddings_path, anatomy.layers_path)


def _part(name: str, parts: Mapping[str, str]) -> str:
    """An adapter stands where the layer stands that it is for."""
    before, mark, _ = name.partition(".lora_")
    plain = f"{before}.weight" if mark else name.replace(".base_layer.", ".")
    return parts[plain]


def merge_adapters(module: nn.Module) -> nn.Module:
    """The same model with its adapters added into the weights: a plain one, that anything loads."""
    for path, part in list(module.named_modules()):
        if hasattr(part, "base_layer") and hasattr(part, "merge"):
            layer: Any = part
            layer.merge()
            parent, _, name = path.rpartition(".")
            setattr(module.get_submodule(parent), name, layer.get_base_layer())
    return module
