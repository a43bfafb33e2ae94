"""A corpus: columns of texts and labels, training rows first.

Each formulation reads columns of its own; `client` and `domain` may stand beside them, and any other column may divide clients.

| task | columns |
| --- | --- |
| classification | text, label; for pairs also second |
| regression | text, score (a number); for pairs also second |
| tagging | words (a list of str), tags (a list of as many, B-X I-X O) |
| qa | context, question, answers (a list of str, empty if there is none), starts (where each begins in the context) |
| seq2seq | source, target |
| lm | text |
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from motet.core.errors import DataError, did_you_mean
from motet.core.rng import Seed
from motet.datasets.columns import CategoryColumn, column_digest

TASK_COLUMNS: dict[str, tuple[str, ...]] = {
    "classification": ("text", "label"),
    "regression": ("text", "score"),
    "tagging": ("words", "tags"),
    "qa": ("context", "question", "answers", "starts"),
    "seq2seq": ("source", "target"),
    "lm": ("text",),
}


@dataclass(frozen=True, eq=False)
class Corpus:
    """The first `train` rows are for training, the others are the global test set. `source` says where it came from."""

    name: str
    task: str
    columns: Mapping[str, Sequence[Any]]
    num_train: int
    source: str = ""

    def __post_init__(self) -> None:
        for needed in TASK_COLUMNS[self.task]:
            self.column(needed)
        sizes = {name: len(column) for name, column in self.columns.items()}
        if len(set(sizes.values())) > 1:
            raise DataError(
                f"{self.name}: columns have different lengths ({sizes}); each row needs a value in each column."
            )
        if not 0 < self.num_train <= len(self):
            raise DataError(
                f"{self.name}: {self.num_train} of {len(self)} rows are for training; at least one is needed."
            )

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def column(self, name: str) -> Sequence[Any]:
        if name not in self.columns:
            has = ", ".join(self.columns)
            raise DataError(
                f"{self.name}: there is no column '{name}'; it has {has}.{did_you_mean(name, self.columns)} "
                f"Say which one it is with data.{name}=…"
            )
        return self.columns[name]

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels of the training rows, sorted."""
        return tuple(sorted(set(self.column("label")[: self.num_train])))

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all it holds."""
        digest = hashlib.blake2b(digest_size=12)
        digest.update(repr((self.name, self.task, self.num_train, sorted(self.columns))).encode())
        for name in sorted(self.columns):
            digest.update(column_digest(self.columns[name]))
        return digest.hexdigest()

    def factorize(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The different values of a column, sorted, and a number for each row."""
        column = self.column(name)
        if not isinstance(column, CategoryColumn):
            return np.unique(np.asarray([str(v) for v in column]), return_inverse=True)
        names = np.asarray(column.names)
        order = np.argsort(names)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return names[order], rank[column.codes]

    def select(self, picked: np.ndarray, train: int) -> Corpus:
        columns = {name: [column[i] for i in picked] for name, column in self.columns.items()}
        return Corpus(self.name, self.task, columns, train, self.source)

    def sample(self, train: int | None, test: int | None, rng: np.random.Generator) -> Corpus:
        """At most so many rows of each split, drawn at random and kept in order."""

        def some(first: int, last: int, most: int | None) -> np.ndarray:
            rows = np.arange(first, last)
            return rows if most is None or most >= len(rows) else np.sort(rng.choice(rows, most, replace=False))

        kept = [some(0, self.num_train, train), some(self.num_train, len(self), test)]
        return self if sum(map(len, kept)) == len(self) else self.select(np.concatenate(kept), len(kept[0]))


def join_splits(
    name: str, task: str, train: Mapping[str, list[Any]], test: Mapping[str, list[Any]], source: str = ""
) -> Corpus:
    """A corpus that came in two parts."""
    size = len(next(iter(train.values())))
    return Corpus(name, task, {key: train[key] + test[key] for key in train if key in test}, size, source)


def split_corpus(
    name: str,
    task: str,
    columns: Mapping[str, Sequence[Any]],
    share: float = 0.2,
    source: str = "",
    seed: Seed = Seed(0),
) -> Corpus:
    """A corpus that came without a test set: a share of its rows becomes one, by default the same in every run."""
    size = len(next(iter(columns.values()), ()))
    order = seed.derive("split", name).numpy().permutation(size)
    held = max(1, round(share * size)) if size > 1 else 0
    rows = np.concatenate([np.sort(order[held:]), np.sort(order[:held])])
    shuffled = {key: [column[i] for i in rows] for key, column in columns.items()}
    return Corpus(name, task, shuffled, size - held, source)
