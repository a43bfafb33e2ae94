"""From texts and text pairs to tokens, and from generated tokens to texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from motet.datasets.corpus import Corpus
from motet.learning.data.features import IGNORE_INDEX, Column, Examples, Features, Ragged
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model

BATCH_SIZE = 10_000  # texts per call; fast tokenizers process them in parallel


def tokenize(
    tokenizer: Any,
    texts: Sequence[str],
    max_tokens: int,
    pairs: Sequence[str] | None = None,
    *,
    pad_to_max: bool = False,
) -> dict[str, Ragged]:
    """Return input ids, and token type ids if there are pairs and the model uses them.

    `pad_to_max` adds padding tokens here, so that they count as text: FedNLP's code uses no attention mask.
    """
    ids: list[list[int]] = []
    types: list[list[int]] = []
    padding = "max_length" if pad_to_max else False
    for start in range(0, len(texts), BATCH_SIZE):
        first = list(texts[start : start + BATCH_SIZE])
        second = None if pairs is None else list(pairs[start : start + BATCH_SIZE])
        encoding = tokenizer(first, second, truncation=True, max_length=max_tokens, padding=padding)
        ids += encoding["input_ids"]
        types += encoding.get("token_type_ids", []) if pairs is not None else []
    columns = {"input_ids": pad_empty_rows(ids, tokenizer.pad_token_id)}
    if types and any(any(row) for row in types):
        columns["token_type_ids"] = Ragged.from_lists(types)
    return columns


def build_text_features(
    corpus: Corpus, model: Model, max_tokens: int, labels: np.ndarray, *, pad_to_max: bool = False
) -> Features:
    """Tokenize the texts of a corpus, or its pairs of texts. `labels` has one number or one row for each."""
    pairs = corpus.columns.get("second")
    ids = tokenize(model.tokenizer, corpus.column("text"), max_tokens, pairs, pad_to_max=pad_to_max)
    columns: dict[str, Column] = {**ids, "labels": labels}
    return Features(corpus.fingerprint, columns, raw_columns=corpus.columns, pad_left=_pools_last_position(model))


def pad_empty_rows(rows: list[list[int]], pad: int) -> Ragged:
    """Give empty rows one padding token: a model needs at least one."""
    return Ragged.from_lists([row or [pad] for row in rows], pad)


def _pools_last_position(model: Model) -> bool:
    """True for XLNet, which reads the last position even if it is padding, so its texts are padded on the left."""
    return getattr(getattr(model.module, "config", None), "model_type", "") == "xlnet"


def offsets_from_sizes(sizes: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))]).astype(np.int64)


def decode_generated(predictions: Predictions, examples: Examples) -> list[str]:
    """Return the generated texts, without special tokens."""
    tokenizer, ids = examples.features.tokenizer, predictions["predictions"].numpy()
    ids = np.where(ids == IGNORE_INDEX, tokenizer.pad_token_id, ids)
    return [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
