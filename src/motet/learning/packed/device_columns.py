"""Columns that examples bring themselves, on a device: a lesson's texts, a teacher's scores, states that others have sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from motet.learning.data.features import Examples, Ragged
from motet.learning.packed.device_dataset import Widths, rectangle, round_up_width
from motet.learning.packed.packed_model import PackedModel

_NO_LIMIT = 2**30
TOGETHER = "label_positions"  # the width of all labels of a client in one row


class DeviceColumns:
    """Each column of all clients in one table, client after client; what is the same for several stands there once.

    The tables are the pack's own and stay where they are, so that a recorded step finds the next fit's in them.
    """

    def __init__(
        self,
        pack: PackedModel,
        name: str,
        many: Sequence[Examples],
        numbers: np.ndarray,
        counts: np.ndarray,
        read: np.ndarray,
    ) -> None:
        """`numbers` [steps, clients, rows] are the examples of each step; those that count 0 only fill a short batch. `read`
        [steps, clients]: whose are read at all."""
        self.pack, self.name, self.kind = pack, name, many[0].extra_shapes
        self.numbers = pack.keep(f"{name} numbers", torch.from_numpy(numbers))
        self.values: dict[str, Tensor] = {}
        self.offsets: dict[str, Tensor] = {}
        self.first: dict[str, Tensor] = {}
        self.pads: dict[str, int] = {}
        sizes: list[dict[str, int]] = [{} for _ in numbers]
        for column in many[0].extra_columns:
            each = [examples.extra_columns[column] for examples in many]
            ragged = [c for c in each if isinstance(c, Ragged)]
            if ragged:
                self._put_ragged(column, ragged)
                for step, found in enumerate(_widths(column, ragged, numbers, counts, read, _limit(many[0]))):
                    sizes[step] |= found
            else:
                self._put(column, [c for c in each if isinstance(c, Tensor)])
        self.widths: list[Widths] = [tuple(found.items()) for found in sizes]

    def _put(self, column: str, each: Sequence[Tensor]) -> None:
        once = list({id(c): c for c in each}.values())
        begins = dict(zip(map(id, once), np.cumsum([0, *map(len, once)]).tolist(), strict=False))
        self.values[column] = self.pack.keep_joined(f"{self.name} {column}", once)
        self._begin(column, [begins[id(c)] for c in each], sum(map(len, once)))

    def _put_ragged(self, column: str, each: Sequence[Ragged]) -> None:
        ends = np.cumsum([0, *(len(c.values) for c in each)])
        offsets = np.concatenate([[0], *(c.offsets[1:] + end for c, end in zip(each, ends, strict=False))])
        values = (
            np.concatenate([c.values for c in each]) if ends[-1] else np.zeros(1)
        )  # there is always something to read
        whole = torch.from_numpy(values.astype(np.int32, copy=False))
        self.values[column] = self.pack.keep_joined(f"{self.name} {column}", [whole])
        self.offsets[column] = self.pack.keep_joined(f"{self.name} {column} offsets", [torch.from_numpy(offsets)])
        self.pads[column] = each[0].pad
        self._begin(column, np.cumsum([0, *map(len, each)])[:-1].tolist(), len(offsets) - 1)

    def _begin(self, column: str, begins: list[int], rows: int) -> None:
        """Where each client's rows begin. One without examples, which may be kept for a while, is given somebody's row."""
        first = torch.tensor(begins).clamp(max=max(0, rows - 1))
        self.first[column] = self.pack.keep(f"{self.name} {column} first", first.unsqueeze(1))

    def batch(self, at: Tensor, counts: Tensor, widths: Widths) -> dict[str, Tensor]:
        """The rows of step `at` for the first clients, of whom `counts` [clients, rows] says which rows are examples."""
        clients, wide, found = len(counts), dict(widths), dict[str, Tensor]()
        numbers = self.numbers.index_select(0, at)[0, :clients]
        for name, values in self.values.items():
            rows = (self.first[name][:clients] + numbers).reshape(-1)
            if name not in self.offsets:
                found[name] = values[rows]
                continue
            found[name], real, _ = rectangle(values, self.offsets[name], rows, wide[name], self.pads[name])
            if name == "input_ids":
                found["attention_mask"] = real.long()
            if name == "labels":
                lengths = real.sum(1).view(clients, -1) * counts.long()
                found["label_positions"] = asked(lengths, wide[name], wide[TOGETHER])
        return found


def asked(lengths: Tensor, width: int, room: int) -> Tensor:
    """[clients, room]: where in a client's table of so wide rows there is a label, row after row; −1 behind the last."""
    ends = lengths.cumsum(1)
    turn = torch.arange(room, device=lengths.device).repeat(len(lengths), 1)
    row = torch.searchsorted(ends, turn, right=True)
    last = row.clamp(max=lengths.shape[1] - 1)
    place = last * width + turn - (ends - lengths).gather(1, last)
    return torch.where(row < lengths.shape[1], place, -1)


def _limit(examples: Examples) -> int:
    """A model may have no more places than the corpus' longest text needs."""
    ids = examples.features.columns.get("input_ids")
    return ids.max_length if isinstance(ids, Ragged) else _NO_LIMIT


def _widths(
    name: str, each: Sequence[Ragged], numbers: np.ndarray, counts: np.ndarray, read: np.ndarray, limit: int
) -> list[dict[str, int]]:
    """How wide a ragged column must be at each step, in a few sizes that recur; of labels also how many a client has."""
    lengths = np.stack(
        [c.lengths[numbers[:, i]] if len(c) else np.zeros_like(numbers[:, i]) for i, c in enumerate(each)], 1
    )
    longest, most = (lengths * read[:, :, None]).max(axis=(1, 2)), (lengths * (counts > 0)).sum(2).max(1)
    found = [{name: min(round_up_width(int(wide)), max(int(wide), limit))} for wide in longest]
    if name == "labels":
        for sizes, many in zip(found, most, strict=True):
            sizes[TOGETHER] = min(_eighths(int(many)), sizes[name] * numbers.shape[2])
    return found


def _eighths(many: int) -> int:
    """Up to the next eighth of a power of two: steps of a training differ by less."""
    by = max(8, 1 << max(0, many.bit_length() - 4))
    return max(by, -(-many // by) * by)
