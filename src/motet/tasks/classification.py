"""One text, one label."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.core.errors import DataError, meant
from motet.datasets.corpus import Corpus
from motet.learning.features import Examples, Features, Ragged
from motet.learning.jobs import Readings
from motet.learning.objectives import CrossEntropy, Logits


@dataclass(frozen=True)
class Classification:
    """Accuracy, macro and weighted F1, and Matthews' correlation, as scikit-learn defines them."""

    labels: tuple[str, ...]
    name: str = "classification"
    headline: str = "accuracy"
    measures: tuple[str, ...] = ("accuracy", "f1_macro", "f1_weighted", "matthews", "loss")
    objective: CrossEntropy = CrossEntropy()
    readout: Logits = Logits()

    def features(self, corpus: Corpus, tokenizer: Any, max_tokens: int) -> Features:
        texts = corpus.column("text")
        ids = tokenized(tokenizer, texts, max_tokens)
        return Features(f"{corpus.key}-{max_tokens}", {"input_ids": ids, "labels": self.label_ids(corpus)})

    def label_ids(self, corpus: Corpus) -> np.ndarray:
        known = {label: i for i, label in enumerate(self.labels)}
        column = corpus.column("label")
        unknown = next(((row, v) for row, v in enumerate(column) if v not in known), None)
        if unknown is not None:
            row, value = unknown
            raise DataError(
                f"{corpus.name}, row {row}: label '{value}' is none of the model's {len(known)} labels "
                f"({', '.join(self.labels[:10])}).{meant(str(value), self.labels)} Mend the row, or train with its label."
            )
        return np.fromiter((known[v] for v in column), np.int64, count=len(column))

    def metrics(self, readings: Readings, examples: Examples) -> dict[str, float]:
        from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

        labels = examples.features.columns["labels"]
        if isinstance(labels, Ragged):
            raise TypeError("classification has one label a text")
        truth, said = labels[examples.rows], readings["logits"].argmax(-1).numpy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a client whose test set has one label is no surprise here
            matthews = float(matthews_corrcoef(truth, said))
        return {
            "accuracy": float(accuracy_score(truth, said)),
            "f1_macro": float(f1_score(truth, said, average="macro", zero_division=0)),
            "f1_weighted": float(f1_score(truth, said, average="weighted", zero_division=0)),
            "matthews": matthews,
            "loss": float(readings["loss"].double().mean()),
        }


def tokenized(tokenizer: Any, texts: Sequence[str], max_tokens: int, batch: int = 10_000) -> Ragged:
    """All texts as one array of ids."""
    rows: list[list[int]] = []
    for at in range(0, len(texts), batch):
        coded = tokenizer(list(texts[at : at + batch]), truncation=True, max_length=max_tokens, padding=False)
        rows += coded["input_ids"]
    for row in rows:
        if not row:  # tokenizers without special tokens make nothing of an empty text; a model needs one token
            row.append(tokenizer.pad_token_id)
    return Ragged.of(rows, tokenizer.pad_token_id)
