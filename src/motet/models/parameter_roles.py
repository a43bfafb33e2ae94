"""Where every parameter of a model stands: embeddings, layer 3, a norm, the head. Read off the module itself.

Hugging Face families name things differently but are built alike: a list of equal blocks, something before it that turns
ids into vectors, something after it. A few families need a word of their own; they are in the tables here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import nn

LAYER_LIST_NAMES = {"layer", "layers", "block", "blocks", "h", "albert_layer_groups"}
# Inside the backbone but outside its blocks: ids to vectors, or tables of positions that all blocks read.
_EMBEDDING = re.compile(
    r"(^|[._])(embed\w*|wte|wpe|shared|mask_emb|rel_embeddings|relative_attention_bias|word_embedding)([._]|$)"
)
# DeBERTa's encoder owns a norm and a convolution that its position table and first block go through.
_BELOW = {"deberta-v2": re.compile(r"encoder\.(LayerNorm|conv)\."), "deberta": re.compile(r"encoder\.LayerNorm\.")}


@dataclass(frozen=True)
class ParameterRoles:
    """`parts` in the terms of `core.layers`; the paths of the embeddings and of the one list of layers, where there is one."""

    roles: dict[str, str]
    embeddings_path: str
    layers_path: str


def infer_parameter_roles(module: nn.Module) -> ParameterRoles:
    prefix = getattr(module, "base_model_prefix", "")
    root = prefix if prefix and hasattr(module, prefix) else ""
    stacks = _outermost(
        [p for p, m in module.named_modules() if isinstance(m, nn.ModuleList) and p.split(".")[-1] in LAYER_LIST_NAMES]
    )
    sided = bool(getattr(getattr(module, "config", None), "is_encoder_decoder", False))
    norms = {p for p, m in module.named_modules() if "Norm" in type(m).__name__}
    family = getattr(getattr(module, "config", None), "model_type", "")
    parts = {}
    for name, _ in module.named_parameters():
        place = _place(name, root, stacks, _BELOW.get(family))
        side = _side(name) if sided and place != "head" else ""
        mark = ".adapter" if "lora_" in name else ".norm" if name.rpartition(".")[0] in norms else ""
        parts[name] = f"{side}{place}{mark}"
    stem = f"{root}.embeddings".lstrip(".")
    has_stem = any(p == stem for p, _ in module.named_modules()) and len(stacks) == 1 and not sided
    return ParameterRoles(parts, stem if has_stem else "", stacks[0] if len(stacks) == 1 else "")


def _outermost(paths: list[str]) -> list[str]:
    return [p for p in paths if not any(p.startswith(f"{other}.") for other in paths if other != p)]


def _place(name: str, root: str, stacks: list[str], below: re.Pattern[str] | None) -> str:
    for stack in stacks:
        if name.startswith(f"{stack}."):
            return f"layers.{name[len(stack) + 1 :].partition('.')[0]}"
    inside = name[len(root) + 1 :] if root and name.startswith(f"{root}.") else name
    if root and inside is name:
        return "head"
    if "pooler" in inside:
        return "pooler"
    if _EMBEDDING.search(inside) or (below and below.search(inside)):
        return "embeddings"
    heads = {"lm_head", "classifier", "classification_head", "qa_outputs", "score", "head", "cls", "generator"}
    return "head" if heads & set(inside.split(".")) or "final_logits_bias" in inside else "final"


def _side(name: str) -> str:
    """The first of the two words: a BERT inside a decoder calls its layers encoder.layer as well."""
    found = re.search(r"(?:^|\.)(encoder|decoder)\.", name)
    return f"{found[1]}." if found else ""
