"""The last layer of an encoder whose classifier reads only the first token.

BERT's classifier reads the first token's state. The other tokens of the last layer matter only as keys and values of its
attention. So queries, the output of the attention and the feed-forward layers are computed for one token of each text: the
logits are the same up to rounding, and so are the gradients. Dropout draws other numbers, because it draws fewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from motet.learning.modules.frozen_prefix import TOLERANCE
from motet.learning.modules.model import copy_sharing_parameters, select_model_inputs


class FirstTokenLayer(nn.Module):
    """A layer of BERT's structure, for the first token. Its parameters keep their names."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.attention, self.intermediate, self.output = layer.attention, layer.intermediate, layer.output
        self.training = layer.training

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
        attention, first = self.attention.self, hidden_states[:, :1]
        inputs = (attention.query(first), attention.key(hidden_states), attention.value(hidden_states))
        query, key, value = (x.unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2) for x in inputs)
        mask = None if attention_mask is None else attention_mask[..., :1, :]
        dropout = attention.dropout.p if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, mask, dropout)
        attended = self.attention.output(mixed.transpose(1, 2).flatten(2), first)
        result: Tensor = self.output(self.intermediate(attended), attended)
        return result


def install_first_token_layer(module: nn.Module, layers_path: str) -> None:
    """Replace the last layer. The other modules stay in their places."""
    layers: Any = module.get_submodule(layers_path)
    if len(layers):
        layers[-1] = FirstTokenLayer(layers[-1])


def reads_first_token_only(module: nn.Module, layers_path: str, probe: Mapping[str, Tensor]) -> bool:
    """Check on a small batch whether the logits are the same with a last layer for the first token."""
    short = copy_sharing_parameters(module).eval()
    try:
        install_first_token_layer(short, layers_path)
        with torch.no_grad():
            inputs = select_model_inputs(probe)
            expected, logits = (m(**inputs)["logits"] for m in (copy_sharing_parameters(module).eval(), short))
            return bool((expected - logits).norm() < TOLERANCE * (expected.norm() + 1e-9))
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError):
        return False
