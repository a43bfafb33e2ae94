"""Low-rank adapters (LoRA, Hu et al. 2021) with peft. The base model is frozen and shared; the adapters are trained.

The adapters are injected into the module itself, so parameter roles, packing and export work as without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from motet.core.errors import ConfigError
from motet.models.parameter_roles import ParameterRoles

_NEW_ROLES = ("head", "pooler")  # new layers on top of the base model, which are trained completely


def add_adapters(module: nn.Module, roles: ParameterRoles, rank: int, alpha: int | None) -> ParameterRoles:
    """Add an adapter to every linear map in the layers, and freeze everything else except the head."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise ConfigError("model.lora needs the package peft. Run: pip install 'motet[adapters]'") from None
    if rank < 0:
        raise ConfigError(f"model.lora is {rank}; expected the rank of the adapters, such as 8, or 0 for none.")
    targets = [
        name
        for name, layer in module.named_modules()
        if type(layer).__name__ in ("Linear", "Conv1D") and ".layers." in f".{roles.roles.get(f'{name}.weight', '')}"
    ]
    if not targets:
        raise ConfigError(
            f"model.lora is {rank}, but {type(module).__name__} has no linear layers to adapt. Remove model.lora, or "
            "use a Transformer."
        )
    config = LoraConfig(r=rank, lora_alpha=alpha or 2 * rank, lora_dropout=0.0, target_modules=targets)
    inject_adapter_in_model(config, module)
    new_roles = {name: _find_role(name, roles.roles) for name, _ in module.named_parameters()}
    for name, parameter in module.named_parameters():
        parameter.requires_grad_("lora_" in name or new_roles[name].startswith(_NEW_ROLES))
    return ParameterRoles(new_roles, roles.embeddings_path, roles.layers_path)


def _find_role(name: str, roles: Mapping[str, str]) -> str:
    """Return the role of a parameter; an adapter has the role of the weight that it adapts."""
    layer, is_adapter, _ = name.partition(".lora_")
    return roles[f"{layer}.weight" if is_adapter else name.replace(".base_layer.", ".")]


def merge_adapters(module: nn.Module) -> nn.Module:
    """Add the adapters to the weights and remove them, so that the model loads without peft."""
    for path, submodule in list(module.named_modules()):
        if hasattr(submodule, "base_layer") and hasattr(submodule, "merge"):
            layer: Any = submodule
            layer.merge()
            parent, _, name = path.rpartition(".")
            setattr(module.get_submodule(parent), name, layer.get_base_layer())
    return module
