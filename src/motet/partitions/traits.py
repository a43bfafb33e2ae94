"""A trait: of which kind each row is. Whatever has a trait can be dealt out unevenly: label, length, language, topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus


@dataclass(frozen=True, eq=False)
class Trait:
    """The kinds there are, sorted, a number for each row, and how they were found, for the recipe."""

    names: np.ndarray
    codes: np.ndarray
    told: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(values: list[str], told: Mapping[str, Any] | None = None) -> Trait:
        names, codes = np.unique(np.asarray(values), return_inverse=True)
        return Trait(names, codes, told or {})

    def varied(self, corpus: Corpus, what: str) -> Trait:
        """The same, if there is more than one kind to shift."""
        present = np.unique(self.codes[: corpus.train])
        if len(present) < 2:
            raise ConfigError(
                f"partition: {what} has one value, '{self.names[present[0]]}', in all {corpus.train:,} training rows of "
                f"{corpus.name}, so it cannot shift; use uniform or quantity, or another column with partition.by=…"
            )
        return self


def column(corpus: Corpus, name: str) -> Trait:
    """The values of a column."""
    return Trait(*corpus.codes(name), {"by": name}).varied(corpus, f"column '{name}'")


def trait_of(corpus: Corpus, by: str, seed: Seed) -> Trait:
    """By name: a column of the corpus, or something that is read off its texts."""
    if by in corpus.columns and by != "label":
        return column(corpus, by)
    if by not in _read_off():
        known = ", ".join(dict.fromkeys([*_read_off(), *corpus.columns]))
        raise ConfigError(f"partition.by is '{by}'; {corpus.name} has no such column. There is {known}.")
    return _read_off()[by](corpus, seed.of("trait")).varied(corpus, f"'{by}'")


def texts_of(corpus: Corpus) -> Iterator[str]:
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


def _read_off() -> dict[str, Callable[[Corpus, Seed], Trait]]:
    """Each in the file of the partition that is named after it."""
    from motet.partitions.feature import cluster_trait
    from motet.partitions.language import language_trait, script_trait
    from motet.partitions.length import length_trait
    from motet.partitions.pseudo_labels import label_trait
    from motet.partitions.vocabulary import vocabulary_trait

    return {
        "label": lambda corpus, seed: label_trait(corpus),
        "length": lambda corpus, seed: length_trait(corpus),
        "language": lambda corpus, seed: language_trait(corpus),
        "script": lambda corpus, seed: script_trait(corpus),
        "cluster": cluster_trait,
        "vocabulary": vocabulary_trait,
    }
