"""The role of each parameter of a model (embeddings, layers.3, head, …), inferred from the module.

Hugging Face families use different names but the same structure: embeddings, a list of equal layers, and a head. The
tables below hold the names, and the exceptions of a few families.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import nn

LAYER_LIST_NAMES = {"layer", "layers", "block", "blocks", "h", "albert_layer_groups"}
HEAD_NAMES = {"lm_head", "classifier", "classification_head", "qa_outputs", "score", "head", "cls", "generator"}
# In the backbone but outside its layers: embeddings, and position tables that all layers use.
_EMBEDDINGS = re.compile(
    r"(^|[._])(embed\w*|wte|wpe|shared|mask_emb|rel_embeddings|relative_attention_bias|word_embedding)([._]|$)"
)
# The norm and the convolution of DeBERTa's encoder are applied before its first layer.
_FAMILY_EMBEDDINGS = {
    "deberta-v2": re.compile(r"encoder\.(LayerNorm|conv)\."),
    "deberta": re.compile(r"encoder\.LayerNorm\."),
}


@dataclass(frozen=True)
class ParameterRoles:
    """Role by parameter name, in the terms of `motet.core.layers`, and the submodule paths of embeddings and layers.

    A path is empty if the model has no such submodule, or several lists of layers.
    """

    roles: dict[str, str]
    embeddings_path: str
    layers_path: str


def infer_parameter_roles(module: nn.Module) -> ParameterRoles:
    config = getattr(module, "config", None)
    prefix = getattr(module, "base_model_prefix", "")
    backbone = prefix if prefix and hasattr(module, prefix) else ""
    layer_lists = _outermost(
        [
            path
            for path, submodule in module.named_modules()
            if isinstance(submodule, nn.ModuleList) and path.split(".")[-1] in LAYER_LIST_NAMES
        ]
    )
    is_encoder_decoder = bool(getattr(config, "is_encoder_decoder", False))
    norms = find_norms(module)
    family_embeddings = _FAMILY_EMBEDDINGS.get(getattr(config, "model_type", ""))
    roles = {}
    for name, _ in module.named_parameters():
        role = _infer_role(name, backbone, layer_lists, family_embeddings)
        stack = _find_stack(name) if is_encoder_decoder and role != "head" else ""
        suffix = ".adapter" if "lora_" in name else ".norm" if name.rpartition(".")[0] in norms else ""
        roles[name] = f"{stack}{role}{suffix}"
    has_one_list = len(layer_lists) == 1
    embeddings = f"{backbone}.embeddings".lstrip(".")
    has_embeddings = has_one_list and not is_encoder_decoder and embeddings in dict(module.named_modules())
    return ParameterRoles(roles, embeddings if has_embeddings else "", layer_lists[0] if has_one_list else "")


def find_norms(module: nn.Module) -> set[str]:
    """Return the paths of all normalization layers."""
    return {path for path, submodule in module.named_modules() if "Norm" in type(submodule).__name__}


def _outermost(paths: list[str]) -> list[str]:
    return [path for path in paths if not any(path.startswith(f"{other}.") for other in paths if other != path)]


def _infer_role(name: str, backbone: str, layer_lists: list[str], family_embeddings: re.Pattern[str] | None) -> str:
    for layers in layer_lists:
        if name.startswith(f"{layers}."):
            return f"layers.{name[len(layers) + 1 :].partition('.')[0]}"
    if backbone and not name.startswith(f"{backbone}."):
        return "head"
    name_in_backbone = name[len(backbone) + 1 :] if backbone else name
    if "pooler" in name_in_backbone:
        return "pooler"
    if _EMBEDDINGS.search(name_in_backbone) or (family_embeddings and family_embeddings.search(name_in_backbone)):
        return "embeddings"
    is_head = HEAD_NAMES & set(name_in_backbone.split(".")) or "final_logits_bias" in name_in_backbone
    return "head" if is_head else "final"


def _find_stack(name: str) -> str:
    """Return "encoder." or "decoder.", whichever comes first: a BERT decoder has layers named encoder.layer, too."""
    match = re.search(r"(?:^|\.)(encoder|decoder)\.", name)
    return f"{match[1]}." if match else ""
