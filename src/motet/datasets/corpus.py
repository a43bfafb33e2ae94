"""A corpus: columns of texts and labels, training rows first. `task_columns` lists the columns of each task."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from motet.core.errors import DataError
from motet.core.rng import Seed
from motet.core.suggestions import did_you_mean
from motet.datasets.columns import CategoryColumn, column_digest, take
from motet.datasets.read_report import ReadReport
from motet.datasets.task_columns import required_columns

TEST_SHARE = 0.2  # of the rows of a corpus without a test set
OWN_DATA_SPLIT = ""  # the split key of all own files, so that the split does not depend on a file's name or format


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """A dataset in columns. The first `num_train` rows are the training set, the others the global test set."""

    name: str
    task: str
    columns: Mapping[str, Sequence[Any]]
    num_train: int
    report: ReadReport = ReadReport()  # the files that it was read from, and what was dropped

    def __post_init__(self) -> None:
        for name in required_columns(self.task):
            self.column(name)
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(
                f"{self.name}: columns have different lengths ({lengths}); every row needs a value in each column."
            )
        if not 0 < self.num_train <= len(self):
            raise DataError(
                f"{self.name}: {self.num_train} of {len(self)} rows are training rows; at least one is needed."
            )

    def __repr__(self) -> str:
        """Describe the corpus without its texts, which may be private."""
        sizes = f"{self.num_train} training rows, {len(self) - self.num_train} test rows"
        return f"Corpus({self.name!r}, {self.task}, {sizes}, columns: {', '.join(self.columns)})"

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def column(self, name: str) -> Sequence[Any]:
        if name not in self.columns:
            key = f"data.{name}" if name in ("text", "label", "client") else f"data.columns.{name}"
            raise DataError(
                f"{self.name}: there is no column '{name}'; the columns are {', '.join(self.columns)}."
                f"{did_you_mean(name, self.columns)} Name the right one with {key}=…"
            )
        return self.columns[name]

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels of the training rows, sorted."""
        return tuple(sorted(set(self.column("label")[: self.num_train])))

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the task, the split and all values. The same rows in files of other names or formats share it."""
        digest = hashlib.blake2b(digest_size=12)
        digest.update(repr((self.task, self.num_train, sorted(self.columns))).encode())
        for name in sorted(self.columns):
            digest.update(column_digest(self.columns[name]))
        return digest.hexdigest()

    def factorize(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the sorted distinct values of a column, and the index of each row's value."""
        column = self.column(name)
        if not isinstance(column, CategoryColumn):
            return np.unique(np.asarray([str(v) for v in column]), return_inverse=True)
        names = np.asarray(column.names)
        order = np.argsort(names)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return names[order], rank[column.codes]

    def select(self, rows: np.ndarray, num_train: int) -> Corpus:
        """Return a corpus of these rows; the first `num_train` of them are for training."""
        columns = {name: take(column, rows) for name, column in self.columns.items()}
        return Corpus(self.name, self.task, columns, num_train, self.report)

    def sample(self, train: int | None, test: int | None, rng: np.random.Generator) -> Corpus:
        """Draw at most `train` training rows and `test` test rows at random; their order stays the same."""

        def draw(start: int, stop: int, limit: int | None) -> np.ndarray:
            rows = np.arange(start, stop)
            return rows if limit is None or limit >= len(rows) else np.sort(rng.choice(rows, limit, replace=False))

        train_rows = draw(0, self.num_train, train)
        test_rows = draw(self.num_train, len(self), test)
        if len(train_rows) + len(test_rows) == len(self):
            return self
        return self.select(np.concatenate([train_rows, test_rows]), len(train_rows))


def join_splits(
    name: str,
    task: str,
    train: Mapping[str, list[Any]],
    test: Mapping[str, list[Any]],
    report: ReadReport = ReadReport(),
) -> Corpus:
    """Build a corpus from separate training and test columns; columns that only one of them has are dropped."""
    num_train = len(next(iter(train.values())))
    return Corpus(name, task, {key: train[key] + test[key] for key in train if key in test}, num_train, report)


def split_corpus(
    name: str,
    task: str,
    columns: Mapping[str, Sequence[Any]],
    test_share: float = TEST_SHARE,
    report: ReadReport = ReadReport(),
    split_key: str | None = None,
) -> Corpus:
    """Build a corpus with a random share of the rows as test set.

    The same `split_key` always gives the same split. None: the name of the corpus.
    """
    size = len(next(iter(columns.values()), ()))
    order = Seed(0).derive("split", name if split_key is None else split_key).numpy().permutation(size)
    num_test = max(1, round(test_share * size)) if size > 1 and test_share else 0
    rows = np.concatenate([np.sort(order[num_test:]), np.sort(order[:num_test])])
    reordered = {key: take(column, rows) for key, column in columns.items()}
    return Corpus(name, task, reordered, size - num_test, report)
