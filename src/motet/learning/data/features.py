"""Tokenised texts as flat arrays, padded batch by batch: nothing is wider than its longest neighbour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from motet.core.messages import message

IGNORE_INDEX = -100  # a label that losses and metrics skip, as in torch.nn.functional.cross_entropy


@message
@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths in one array; short rows are filled with `pad` when they stand beside longer ones."""

    values: np.ndarray
    offsets: np.ndarray
    pad: int = 0

    @staticmethod
    def from_lists(rows: Sequence[Sequence[int]], pad: int = 0) -> Ragged:
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(r) for r in rows], out=offsets[1:])
        values = np.fromiter((v for r in rows for v in r), np.int32, count=int(offsets[-1]))
        return Ragged(values, offsets, pad)

    @staticmethod
    def from_arrays(rows: Sequence[np.ndarray], pad: int = 0) -> Ragged:
        """Of rows that are arrays already."""
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(r) for r in rows], out=offsets[1:])
        return Ragged(np.concatenate([np.zeros(0, np.int32), *rows]).astype(np.int32), offsets, pad)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    @cached_property
    def max_length(self) -> int:
        return int(self.lengths.max(initial=1))

    @cached_property
    def max_value(self) -> int:
        """The largest value."""
        return int(max(self.pad, self.values.max(initial=0)))

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def pad_rows(self, rows: np.ndarray, left: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Some rows as a rectangle, and where in it they really are; `left` fills in front."""
        first, last = self.offsets[rows], self.offsets[rows + 1]
        width = int((last - first).max(initial=0))
        gap = (width - (last - first))[:, None] if left else 0
        places = np.arange(width) - gap
        real = (places >= 0) & (places < (last - first)[:, None])
        where = np.where(real, first[:, None] + places, 0)
        return np.where(real, self.values[where], self.pad) if len(self.values) else np.zeros(
            where.shape, np.int32
        ), real

    def select(self, rows: np.ndarray) -> Ragged:
        return Ragged.from_arrays([self[row] for row in rows], self.pad)


Column = Ragged | np.ndarray


@dataclass(frozen=True, eq=False)
class Features:
    """One corpus as a model reads it. `key` names it, so that worker processes can find it without being sent it.

    An example may become several rows (windows of a long text): those of example i are `first[i] : first[i + 1]`. `side` are
    columns a row that no batch needs, `texts` the corpus's own columns, an entry an example; metrics look at both.
    """

    key: str
    columns: Mapping[str, Column]
    example_offsets: np.ndarray | None = None
    metadata: Mapping[str, Column] = field(default_factory=dict)
    raw_columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    tokenizer: Any = None  # to read back what a model writes
    pad_left: bool = False  # padding stands in front, for a model that reads its last position (XLNet)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def example_ids(self, rows: np.ndarray) -> np.ndarray:
        """Which example each row is of."""
        if self.example_offsets is None:
            return rows
        found: np.ndarray = np.searchsorted(self.example_offsets, rows, side="right") - 1
        return found

    @property
    def lengths(self) -> np.ndarray:
        ids = self.columns["input_ids"]
        return ids.lengths if isinstance(ids, Ragged) else np.full(len(ids), ids.shape[1])

    def passage_tokens(self, row: int) -> np.ndarray:
        """The tokens of a text itself, without a question put to it (whose tokens stand nowhere in the text)."""
        ids, places = self.columns["input_ids"], self.metadata.get("first")
        return ids[row] if places is None else ids[row][places[row] >= 0]

    def batch(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Some rows as tensors; `attention_mask` marks what is no padding."""
        tensors: dict[str, Tensor] = {}
        for name, column in self.columns.items():
            if isinstance(column, Ragged):
                table, real = column.pad_rows(rows, self.pad_left)
                tensors[name] = torch.from_numpy(table.astype(np.int64))
                if name == "input_ids":
                    tensors["attention_mask"] = torch.from_numpy(real.astype(np.int64))
            else:
                tensors[name] = torch.from_numpy(column[rows])
        return tensors


NO_FEATURES = Features("", {})


@message
@dataclass(frozen=True, eq=False)
class Examples:
    """Some rows of some features: a client's training set, a test set. `extra` are columns of its own (a teacher's logits).

    Examples that bring texts of their own (`input_ids`) bring all that goes with them: nothing else of the corpus is read.
    """

    features: Features
    rows: np.ndarray
    extra_columns: Mapping[str, Tensor | Ragged] = field(default_factory=dict)

    @staticmethod
    def from_columns(**columns: Tensor) -> Examples:
        """Examples of no corpus, which consist of these columns alone: states that others have sent."""
        return Examples(NO_FEATURES, np.arange(len(next(iter(columns.values())))), columns)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def has_own_input_ids(self) -> bool:
        return "input_ids" in self.extra_columns

    @property
    def extra_shapes(self) -> tuple[object, ...]:
        """Of the extra columns: examples side by side have the same."""
        kinds = (
            (n, ("ragged", c.pad) if isinstance(c, Ragged) else (*c.shape[1:], c.dtype))
            for n, c in self.extra_columns.items()
        )
        return tuple(kinds)

    @property
    def lengths(self) -> np.ndarray:
        if isinstance(ids := self.extra_columns.get("input_ids"), Ragged):
            return ids.lengths
        if self.features is NO_FEATURES:
            return np.zeros(len(self), np.int64)
        lengths: np.ndarray = self.features.lengths[self.rows]
        return lengths

    def batch(self, places: np.ndarray) -> dict[str, Tensor]:
        """Some examples as tensors. Where `labels` are a ragged column of their own, `asked` says where they stand."""
        tensors = {} if self.has_own_input_ids else self.features.batch(self.rows[places])
        for name, column in self.extra_columns.items():
            if isinstance(column, Ragged):
                table, real = column.pad_rows(places)
                tensors[name] = torch.from_numpy(table.astype(np.int64))
                if name == "input_ids":
                    tensors["attention_mask"] = torch.from_numpy(real.astype(np.int64))
                if name == "labels":
                    tensors["label_positions"] = torch.from_numpy(np.flatnonzero(real)).unsqueeze(0)
            else:
                tensors[name] = column[torch.from_numpy(places)]
        return tensors

    def unique_token_ids(self) -> np.ndarray:
        """All token ids that occur, and the padding."""
        ids = self.features.columns["input_ids"]
        if not isinstance(ids, Ragged):
            return np.unique(ids[self.rows]).astype(np.int64)
        seen = np.zeros(ids.max_value + 1, bool)
        seen[ids.pad] = True
        lengths = self.lengths
        first = ids.offsets[self.rows] - np.concatenate([[0], np.cumsum(lengths[:-1])]) if len(self) else lengths
        seen[ids.values[np.repeat(first, lengths) + np.arange(lengths.sum())]] = True
        return np.flatnonzero(seen)

    def select(self, places: np.ndarray) -> Examples:
        index = torch.from_numpy(places)
        extra = {
            name: c.select(places) if isinstance(c, Ragged) else c[index] for name, c in self.extra_columns.items()
        }
        return Examples(self.features, self.rows[places], extra)
