"""The number of tokens for which a model has an embedding."""

from __future__ import annotations

from typing import Any

from torch import nn

from motet.core.errors import ConfigError
from motet.learning.data.features import Features, Ragged
from motet.learning.modules.model import Model

_NO_TOKENS = ("token_type_ids",)


def count_token_embeddings(module: nn.Module) -> int | None:
    """Return the number of token embeddings; None if the module does not tell."""
    get_embeddings: Any = getattr(module, "get_input_embeddings", None)
    weight = None if get_embeddings is None else getattr(get_embeddings(), "weight", None)
    return None if weight is None else len(weight)


def check_token_ids(features: Features, model: Model, corpus: str) -> None:
    """Raise an error if a text has a token without an embedding: the first batch with it would fail."""
    count = count_token_embeddings(model.module)
    if count is None or model.tokenizer is None or len(model.tokenizer) <= count:
        return
    for name, column in features.columns.items():
        if not isinstance(column, Ragged) or not name.endswith("_ids") or name in _NO_TOKENS:
            continue
        largest = column.max_value - len(model.virtual_tokens)
        if largest >= count:
            raise ConfigError(
                f"{corpus} has the token {model.tokenizer.convert_ids_to_tokens(largest)!r} with the id {largest}, but the "
                f"model has embeddings for {count} tokens only; its tokenizer has {len(model.tokenizer)}. Remove the "
                "tokens that were added to the tokenizer, or give the model embeddings for them with "
                "resize_token_embeddings of transformers."
            )
