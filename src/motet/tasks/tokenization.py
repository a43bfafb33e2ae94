"""Texts to token ids: one text, a pair, or words that are already apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from motet.learning.data.features import Ragged
from motet.learning.modules.model import Model

BATCH = 10_000  # texts; a fast tokenizer shares them out over the cores


def tokenize(
    tokenizer: Any,
    texts: Sequence[Any],
    max_tokens: int,
    pairs: Sequence[str] | None = None,
    *,
    full: bool = False,
    **options: Any,
) -> dict[str, Ragged]:
    """Input ids, and token types where the texts are pairs and the model tells the two apart.

    `full` pads everything to `max_tokens` here, so that padding counts as text: FedNLP's code feeds no attention mask.
    """
    ids: list[list[int]] = []
    types: list[list[int]] = []
    padding = "max_length" if full else False
    for at in range(0, len(texts), BATCH):
        second = None if pairs is None else list(pairs[at : at + BATCH])
        coded = tokenizer(
            list(texts[at : at + BATCH]), second, truncation=True, max_length=max_tokens, padding=padding, **options
        )
        ids += coded["input_ids"]
        types += coded.get("token_type_ids", []) if pairs is not None else []
    columns = {"input_ids": pad_empty_rows(ids, tokenizer.pad_token_id)}
    if types and any(any(row) for row in types):
        columns["token_type_ids"] = Ragged.from_lists(types)
    return columns


def pad_empty_rows(rows: list[list[int]], pad: int) -> Ragged:
    """Tokenizers without special tokens make nothing of an empty text; a model needs one token."""
    return Ragged.from_lists([row or [pad] for row in rows], pad)


def pools_last_position(model: Model) -> bool:
    """XLNet sums a text up in its last position, wherever the padding is; so its padding must stand in front."""
    return getattr(getattr(model.module, "config", None), "model_type", "") == "xlnet"


def offsets_from_sizes(sizes: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))]).astype(np.int64)
