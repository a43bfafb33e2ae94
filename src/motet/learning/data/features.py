"""Tokenized texts as flat arrays. A batch is padded only to its longest text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from motet.core.messages import message

_MAX_KNOWN_CLIENTS, _MAX_KNOWN_ROWS = 1024, 4096  # whose token ids are kept: some 20 MB
IGNORE_INDEX = -100  # a label that losses and metrics skip, as in torch.nn.functional.cross_entropy


@message
@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths in one array.

    Row i is `values[offsets[i] : offsets[i + 1]]`; `pad` fills short rows.
    """

    values: np.ndarray
    offsets: np.ndarray
    pad: int = 0

    @staticmethod
    def from_lists(rows: Sequence[Sequence[int]], pad: int = 0) -> Ragged:
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        values = np.fromiter((value for row in rows for value in row), np.int32, count=int(offsets[-1]))
        return Ragged(values, offsets, pad)

    @staticmethod
    def from_arrays(rows: Sequence[np.ndarray], pad: int = 0) -> Ragged:
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
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
        return int(max(self.pad, self.values.max(initial=0)))

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def pad_rows(self, rows: np.ndarray, left: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return these rows as a padded matrix, and a mask that is True where a value is not padding."""
        starts, ends = self.offsets[rows], self.offsets[rows + 1]
        width = int((ends - starts).max(initial=0))
        shift = (width - (ends - starts))[:, None] if left else 0
        columns = np.arange(width) - shift
        mask = (columns >= 0) & (columns < (ends - starts)[:, None])
        positions = np.where(mask, starts[:, None] + columns, 0)
        if not len(self.values):
            return np.zeros(positions.shape, np.int32), mask
        return np.where(mask, self.values[positions], self.pad), mask

    def select(self, rows: np.ndarray) -> Ragged:
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return Ragged(self.values[slice_positions(self.offsets[rows], lengths)], offsets, self.pad)

    def keep(self, is_kept: np.ndarray) -> Ragged:
        """Return the same rows with only some of their values."""
        kept_before = np.concatenate([[0], np.cumsum(is_kept)]).astype(np.int64)
        return Ragged(self.values[is_kept], kept_before[self.offsets], self.pad)


Column = Ragged | np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class Features:
    """A tokenized corpus. `key` identifies it, so that worker processes can look it up instead of receiving a copy.

    An example may become several rows (windows of a long text): example i is
    `example_offsets[i] : example_offsets[i + 1]`. `metadata` holds columns per row that are not part of a batch, and
    `raw_columns` the corpus columns per example; metrics use both.
    """

    key: str
    columns: Mapping[str, Column]
    example_offsets: np.ndarray | None = None
    metadata: Mapping[str, Column] = field(default_factory=dict)
    raw_columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    tokenizer: Any = None  # decodes generated text
    pad_left: bool = False  # for models that read their last position (XLNet)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @cached_property
    def known_token_ids(self) -> dict[bytes, np.ndarray]:
        """The token ids of some examples, by their rows. Finding them takes as long as planning a client's steps."""
        return {}

    def example_ids(self, rows: np.ndarray) -> np.ndarray:
        """Return the index of the example that each row belongs to."""
        if self.example_offsets is None:
            return rows
        ids: np.ndarray = np.searchsorted(self.example_offsets, rows, side="right") - 1
        return ids

    @property
    def lengths(self) -> np.ndarray:
        ids = self.columns["input_ids"]
        return ids.lengths if isinstance(ids, Ragged) else np.full(len(ids), ids.shape[1])

    def lengths_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the lengths of some rows, without computing those of the whole corpus."""
        ids = self.columns["input_ids"]
        return (
            ids.offsets[rows + 1] - ids.offsets[rows] if isinstance(ids, Ragged) else np.full(len(rows), ids.shape[1])
        )

    def ragged(self, name: str) -> Ragged:
        """Return a column of batches or of metadata that has a value for each token."""
        column = self.columns.get(name, self.metadata.get(name))
        if not isinstance(column, Ragged):
            raise TypeError(f"the column '{name}' is a {type(column).__name__}; expected a value for each token")
        return column

    def passage_tokens(self, rows: np.ndarray) -> Ragged:
        """Return the tokens of the texts themselves, without questions that precede them.

        `metadata["token_starts"]` is -1 for tokens outside the passage.
        """
        ids, token_starts = self.columns["input_ids"], self.metadata.get("token_starts")
        texts = ids.select(rows) if isinstance(ids, Ragged) else Ragged.from_arrays(list(ids[rows]))
        return texts.keep(token_starts.select(rows).values >= 0) if isinstance(token_starts, Ragged) else texts

    def batch(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Return rows as padded tensors, with an `attention_mask`."""
        tensors: dict[str, Tensor] = {}
        for name, column in self.columns.items():
            if isinstance(column, Ragged):
                padded, mask = column.pad_rows(rows, self.pad_left)
                tensors[name] = torch.from_numpy(padded.astype(np.int64))
                if name == "input_ids":
                    tensors["attention_mask"] = torch.from_numpy(mask.astype(np.int64))
            else:
                tensors[name] = torch.from_numpy(column[rows])
        return tensors


NO_FEATURES = Features("", {})


@message
@dataclass(frozen=True, eq=False)
class Examples:
    """Rows of a corpus, for example a client's training set, with optional extra columns (teacher logits).

    If `extra_columns` holds `input_ids`, the examples bring all of their inputs and the corpus columns are not read.
    """

    features: Features
    rows: np.ndarray
    extra_columns: Mapping[str, Tensor | Ragged] = field(default_factory=dict)

    @staticmethod
    def from_columns(**columns: Tensor) -> Examples:
        """Make examples that belong to no corpus, for example hidden states from other clients."""
        return Examples(NO_FEATURES, np.arange(len(next(iter(columns.values())))), columns)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def has_own_input_ids(self) -> bool:
        return "input_ids" in self.extra_columns

    @property
    def extra_shapes(self) -> tuple[object, ...]:
        """Describe the extra columns; examples can be packed together only if this is equal."""
        shapes = (
            (name, ("ragged", column.pad) if isinstance(column, Ragged) else (*column.shape[1:], column.dtype))
            for name, column in self.extra_columns.items()
        )
        return tuple(shapes)

    @property
    def lengths(self) -> np.ndarray:
        if isinstance(ids := self.extra_columns.get("input_ids"), Ragged):
            return ids.lengths
        if self.features is NO_FEATURES:
            return np.zeros(len(self), np.int64)
        return self.features.lengths_of(self.rows)

    def batch(self, indices: np.ndarray) -> dict[str, Tensor]:
        """Return examples as padded tensors.

        If `labels` are a ragged extra column, `label_positions` holds their positions in the flattened label matrix.
        """
        tensors = {} if self.has_own_input_ids else self.features.batch(self.rows[indices])
        for name, column in self.extra_columns.items():
            if isinstance(column, Ragged):
                padded, mask = column.pad_rows(indices)
                tensors[name] = torch.from_numpy(padded.astype(np.int64))
                if name == "input_ids":
                    tensors["attention_mask"] = torch.from_numpy(mask.astype(np.int64))
                if name == "labels":
                    tensors["label_positions"] = torch.from_numpy(np.flatnonzero(mask)).unsqueeze(0)
            else:
                tensors[name] = column[torch.from_numpy(indices)]
        return tensors

    def column(self, name: str) -> np.ndarray:
        """Return a column of the corpus that has one number, or one row, for each example."""
        values: np.ndarray = np.asarray(self.features.columns[name])[self.rows]
        return values

    def unique_token_ids(self) -> np.ndarray:
        """Return the sorted token ids that occur, including the padding token. Clients that train again have the same."""
        if len(self) > _MAX_KNOWN_ROWS:
            return self._find_token_ids()
        known, key = self.features.known_token_ids, self.rows.tobytes()
        if key not in known:
            if len(known) >= _MAX_KNOWN_CLIENTS:
                known.clear()
            known[key] = self._find_token_ids().astype(np.int32)
        return known[key]

    def _find_token_ids(self) -> np.ndarray:
        ids = self.features.columns["input_ids"]
        if not isinstance(ids, Ragged):
            return np.unique(ids[self.rows]).astype(np.int64)
        occurs = np.zeros(ids.max_value + 1, bool)
        occurs[ids.pad] = True
        occurs[ids.select(self.rows).values] = True
        return np.flatnonzero(occurs)

    def select(self, indices: np.ndarray) -> Examples:
        index = torch.from_numpy(indices)
        columns = {
            name: column.select(indices) if isinstance(column, Ragged) else column[index]
            for name, column in self.extra_columns.items()
        }
        return Examples(self.features, self.rows[indices], columns)


def slice_positions(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the positions of several slices of an array, one slice after another."""
    shifts = starts - (np.cumsum(lengths) - lengths)
    positions: np.ndarray = np.repeat(shifts, lengths) + np.arange(int(lengths.sum()))
    return positions
