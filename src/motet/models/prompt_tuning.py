"""Prompt tuning: vectors before every text are trained, and the model is frozen.

The vectors are the embeddings of virtual tokens, whose ids follow those of the vocabulary. Tasks put these ids before their
prompts, so that lengths, generation and packing need to know nothing about them. peft puts the same vectors before the
embeddings of a text, so an exported prompt gives the same numbers there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from motet.models.model_config import AdapterConfig
from motet.models.parameter_roles import ParameterRoles


class PromptEmbedding(nn.Module):
    """The word embeddings of a frozen model, followed by those of the virtual tokens."""

    def __init__(self, words: nn.Embedding, count: int) -> None:
        """The virtual tokens start as random words, which train faster than random vectors (Lester et al. 2021)."""
        super().__init__()
        self.words, self.virtual = words, nn.Embedding(count, words.embedding_dim)
        self.virtual.weight.data.copy_(words.weight[torch.randperm(words.num_embeddings)[:count]])

    @property
    def weight(self) -> Tensor:
        """The table of words, to which transformers ties output layers."""
        return self.words.weight

    @property
    def virtual_tokens(self) -> tuple[int, ...]:
        first = self.words.num_embeddings
        return tuple(range(first, first + self.virtual.num_embeddings))

    def forward(self, ids: Tensor) -> Tensor:
        first = self.words.num_embeddings
        is_virtual = ids >= first
        words = self.words(ids.masked_fill(is_virtual, 0))
        return torch.where(is_virtual.unsqueeze(-1), self.virtual((ids - first).clamp(min=0)).to(words.dtype), words)


def add_prompt(module: Any, roles: ParameterRoles, config: AdapterConfig) -> ParameterRoles:
    """Add virtual tokens to a causal model and freeze everything else. Return the new roles."""
    module.set_input_embeddings(PromptEmbedding(module.get_input_embeddings(), config.tokens))
    new_roles = {}
    for name, parameter in module.named_parameters():
        is_virtual = name.endswith(".virtual.weight")
        parameter.requires_grad_(is_virtual)
        new_roles[name] = "embeddings.adapter" if is_virtual else roles.roles[name.replace(".words.weight", ".weight")]
    return ParameterRoles(new_roles, roles.embeddings_path, roles.layers_path)


def find_prompt(module: Any) -> PromptEmbedding | None:
    """Return the embeddings of a module with virtual tokens."""
    get_embeddings = getattr(module, "get_input_embeddings", None)
    embeddings = None if get_embeddings is None else get_embeddings()
    return embeddings if isinstance(embeddings, PromptEmbedding) else None


def save_prompt(module: Any, prompt: PromptEmbedding, base: str, folder: Path) -> None:
    """Write a peft directory with the vectors of the virtual tokens, for the pretrained model `base`."""
    from peft import PromptTuningConfig
    from safetensors.torch import save_file

    config = module.config
    settings = PromptTuningConfig(
        task_type="CAUSAL_LM", base_model_name_or_path=base, inference_mode=True,
        num_virtual_tokens=prompt.virtual.num_embeddings, token_dim=prompt.virtual.embedding_dim,
        num_layers=config.num_hidden_layers, num_attention_heads=config.num_attention_heads,
        num_transformer_submodules=1,
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"prompt_embeddings": prompt.virtual.weight.detach().contiguous()}
    save_file(tensors, str(folder / "adapter_model.safetensors"), metadata={"format": "pt"})
    settings.save_pretrained(str(folder))
