"""A trait: of which kind each row is. Whatever has a trait can be dealt out unevenly: label, length, language, topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.datasets.corpus import Corpus

TEXT_COLUMNS = ("text", "second", "words", "context", "question", "source", "target")


@dataclass(frozen=True, eq=False)
class Trait:
    """The kinds there are, sorted, a number for each row, and how they were found, for the recipe."""

    names: np.ndarray
    codes: np.ndarray
    settings: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def from_values(values: list[str], settings: Mapping[str, Any] | None = None) -> Trait:
        names, codes = np.unique(np.asarray(values), return_inverse=True)
        return Trait(names, codes, settings or {})

    def unless_column(self, corpus: Corpus) -> Trait | None:
        """The trait, unless a column of the corpus says the same."""
        return None if self.settings.get("by") in corpus.columns else self

    def require_variety(self, corpus: Corpus, what: str) -> Trait:
        """The same, if there is more than one kind to shift."""
        present = np.unique(self.codes[: corpus.num_train])
        if len(present) < 2:
            raise ConfigError(
                f"partition: {what} has one value, '{self.names[present[0]]}', in all {corpus.num_train:,} training rows of "
                f"{corpus.name}, so it cannot shift; use uniform or quantity, or another column with partition.by=…"
            )
        return self


def topic_texts(corpus: Corpus) -> Iterator[str]:
    """What FedNLP reads of each row to say what it is about: the text, the words, question and answer, the target."""
    columns = corpus.columns
    match corpus.task:
        case "tagging":
            return (" ".join(words) for words in columns["words"])
        case "qa":
            return (f"{q} {' '.join(a[:1])}" for q, a in zip(columns["question"], columns["answers"], strict=True))
        case "seq2seq":
            return iter(columns["target"])
        case _ if "second" in columns:
            return (f"{a} {b}" for a, b in zip(columns["text"], columns["second"], strict=True))
        case _:
            return iter(columns["text"])


def full_texts(corpus: Corpus) -> Iterator[str]:
    """All that a client wrote or was given to read, row by row."""
    columns = [corpus.columns[name] for name in TEXT_COLUMNS if name in corpus.columns]
    return (" ".join(v if isinstance(v, str) else " ".join(v) for v in row) for row in zip(*columns, strict=True))
