"""Hashes and lengths of all rows of a corpus, computed in batches, so that a million rows take seconds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.datasets.corpus import Corpus
from motet.datasets.inspection.text_forms import REPLACEMENT_CHARACTER, has_escapes, has_mojibake, is_printed
from motet.datasets.missing_values import looks_missing
from motet.datasets.task_columns import find_task_columns

BATCH_ROWS = 4096


@dataclass(frozen=True, eq=False)
class RowFacts:
    """One value per row. Equal texts have equal hashes; different texts practically never do."""

    inputs: np.ndarray  # hash of what the model reads
    targets: np.ndarray  # hash of what it should predict
    passages: np.ndarray | None  # hash of the context, for question answering
    lengths: np.ndarray  # characters of the input
    is_empty: np.ndarray  # some input column is empty
    is_missing: np.ndarray  # some input column is not empty, but looks like a missing value
    has_replacement: np.ndarray  # some input column has a replacement character
    has_mojibake: np.ndarray  # some input column looks like UTF-8 that was decoded as Latin-1
    has_escapes: np.ndarray  # some input column has escape sequences, such as &amp;
    is_printed: np.ndarray  # some input column is a printed list, such as ['a', 'b']
    is_copy: np.ndarray  # two columns that should differ are equal: text and second, source and target


def input_columns(corpus: Corpus) -> tuple[str, ...]:
    """Return the columns that the model reads."""
    columns = find_task_columns(corpus.task, corpus.columns)
    return (*columns.inputs, *(name for name in columns.optional_inputs if name in corpus.columns))


def to_text(value: Any) -> str:
    """Return a text without surrounding whitespace, or the words of a list joined by spaces."""
    return value.strip() if isinstance(value, str) else " ".join(map(str, value))


def compute_row_facts(corpus: Corpus) -> RowFacts:
    size, names = len(corpus), input_columns(corpus)
    inputs, targets, lengths = (np.zeros(size, np.int64) for _ in range(3))
    is_empty, is_missing, replaced, mojibake, escaped, printed, is_copy = (np.zeros(size, bool) for _ in range(7))
    passages = np.zeros(size, np.int64) if corpus.task == "qa" else None
    target = find_task_columns(corpus.task, corpus.columns).target
    for rows in batches(0, size):
        texts = [[to_text(value) for value in corpus.columns[name][rows]] for name in names]
        inputs[rows] = _hash_rows(texts)
        if target is not None:
            values = list(map(str, corpus.columns[target][rows]))
            targets[rows] = _hash_rows([values])
            second = texts[-1] if len(texts) > 1 else values
            is_copy[rows] = [first == other for first, other in zip(texts[0], second, strict=True)]
        elif corpus.task == "preference":
            is_copy[rows] = [chosen == rejected for chosen, rejected in zip(*texts[-2:], strict=True)]
        if passages is not None:
            passages[rows] = _hash_rows(texts[:1])
        lengths[rows] = np.sum([list(map(len, column)) for column in texts], axis=0)
        is_empty[rows] = _any_column(operator.not_, texts)
        is_missing[rows] = _any_column(looks_missing, texts)
        replaced[rows] = _any_column(lambda text: REPLACEMENT_CHARACTER in text, texts)
        mojibake[rows] = _any_column(has_mojibake, texts)
        escaped[rows] = _any_column(has_escapes, texts)
        printed[rows] = _any_column(is_printed, texts)
    return RowFacts(
        inputs=inputs,
        targets=targets,
        passages=passages,
        lengths=lengths,
        is_empty=is_empty,
        is_missing=is_missing & ~is_empty,
        has_replacement=replaced,
        has_mojibake=mojibake,
        has_escapes=escaped,
        is_printed=printed,
        is_copy=is_copy & ~is_empty,
    )


def _any_column(has_property: Callable[[str], bool], columns: Sequence[Sequence[str]]) -> np.ndarray:
    """Return for each row whether some column has a text with this property."""
    flags: np.ndarray = np.any([list(map(has_property, column)) for column in columns], axis=0)
    return flags


def batches(start: int, stop: int) -> Iterator[slice]:
    """Yield slices of at most BATCH_ROWS rows: columns may be on disk, and larger than memory."""
    for first in range(start, stop, BATCH_ROWS):
        yield slice(first, min(first + BATCH_ROWS, stop))


def _hash_rows(columns: Sequence[list[str]]) -> list[int]:
    return list(map(hash, columns[0])) if len(columns) == 1 else list(map(hash, zip(*columns, strict=True)))


def count_duplicates(hashes: np.ndarray) -> int:
    """Return how many rows are equal to an earlier row."""
    return len(hashes) - len(np.unique(hashes))


def count_contradictions(inputs: np.ndarray, targets: np.ndarray) -> int:
    """Return how many different inputs have more than one target."""
    order = np.lexsort((targets, inputs))
    inputs, targets = inputs[order], targets[order]
    differs = (inputs[1:] == inputs[:-1]) & (targets[1:] != targets[:-1])
    return len(np.unique(inputs[1:][differs]))
