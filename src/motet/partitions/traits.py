"""A trait is a categorical property of each row: label, length, language, topic, or any column.

Partition strategies give clients different distributions of a trait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.datasets.corpus import Corpus

TEXT_COLUMNS = (
    "text", "second", "words", "context", "question", "source", "target", "prompt", "completion", "chosen", "rejected",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Trait:
    """The categories, sorted; the category of each row; and how they were computed, for the partition's recipe."""

    categories: np.ndarray
    codes: np.ndarray
    settings: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def from_values(values: list[str], settings: Mapping[str, Any] | None = None) -> Trait:
        categories, codes = np.unique(np.asarray(values), return_inverse=True)
        return Trait(categories, codes, settings or {})

    def unless_column(self, corpus: Corpus) -> Trait | None:
        """Return the trait, or None if a column of the corpus holds the same values."""
        return None if self.settings.get("by") in corpus.columns else self

    def require_variety(self, corpus: Corpus, description: str) -> Trait:
        """Return the trait, or raise if all training rows have the same category."""
        present = np.unique(self.codes[: corpus.num_train])
        if len(present) < 2:
            raise ConfigError(
                f"partition: {description} has one value, '{self.categories[present[0]]}', in all {corpus.num_train:,} "
                f"training rows of {corpus.name}, so clients cannot differ in it. Use uniform or quantity, or another "
                "column with partition.by=…"
            )
        return self


def topic_texts(corpus: Corpus) -> Iterator[str]:
    """Yield the text that FedNLP clusters for each row: the text, the words, question and answer, or the target."""
    columns = corpus.columns
    match corpus.task:
        case "tagging":
            return (" ".join(words) for words in columns["words"])
        case "qa":
            return (f"{q} {' '.join(a[:1])}" for q, a in zip(columns["question"], columns["answers"], strict=True))
        case "seq2seq":
            return iter(columns["target"])
        case "instruct" | "preference":
            return (prompt if isinstance(prompt, str) else " ".join(prompt) for prompt in columns["prompt"])
        case _ if "second" in columns:
            return (f"{a} {b}" for a, b in zip(columns["text"], columns["second"], strict=True))
        case _:
            return iter(columns["text"])


def full_texts(corpus: Corpus) -> Iterator[str]:
    """Yield all text of each row."""
    columns = [corpus.columns[name] for name in TEXT_COLUMNS if name in corpus.columns]
    return (" ".join(v if isinstance(v, str) else " ".join(v) for v in row) for row in zip(*columns, strict=True))
