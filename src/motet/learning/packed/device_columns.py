"""The examples' extra columns on a device: self-supervised inputs, teacher logits, hidden states from other clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from motet.learning.data.features import Examples, Ragged
from motet.learning.packed.device_dataset import Widths, pad_ragged, round_up_width
from motet.learning.packed.step_buffers import ExampleBuffers

_NO_LIMIT = 2**30
_LABELS_PER_CLIENT = "label_positions"  # the name in `Widths` of the number of labels of a client


class DeviceColumns:
    """Each extra column of all clients in one table, client after client. Columns that clients share are stored once.

    The tables are written to the packed model's buffers, so that a captured step finds the next job's data in them.
    """

    def __init__(
        self,
        buffers: ExampleBuffers,
        examples: Sequence[Examples],
        indices: np.ndarray,
        example_weights: np.ndarray,
        is_read: np.ndarray,
    ) -> None:
        """`indices` [steps, clients, rows] are the examples of each step; those of weight 0 fill a short batch.

        `is_read` [steps, clients] marks the clients that a step computes.
        """
        self.buffers, self.shapes = buffers, examples[0].extra_shapes
        self.indices = buffers.indices.write(torch.from_numpy(indices))
        self.values: dict[str, Tensor] = {}
        self.offsets: dict[str, Tensor] = {}
        self.first_rows: dict[str, Tensor] = {}
        self.pads: dict[str, int] = {}
        widths: list[dict[str, int]] = [{} for _ in indices]
        max_width = _max_width(examples[0])
        for name in examples[0].extra_columns:
            columns = [client.extra_columns[name] for client in examples]
            ragged = [column for column in columns if isinstance(column, Ragged)]
            if ragged:
                self._write_ragged(name, ragged)
                step_widths = _step_widths(name, ragged, indices, example_weights, is_read, max_width)
                for step, by_column in enumerate(step_widths):
                    widths[step] |= by_column
            else:
                self._write_dense(name, [column for column in columns if isinstance(column, Tensor)])
        self.widths: list[Widths] = [tuple(by_column.items()) for by_column in widths]

    def _write_dense(self, name: str, columns: Sequence[Tensor]) -> None:
        distinct = list({id(column): column for column in columns}.values())
        starts = dict(zip(map(id, distinct), np.cumsum([0, *map(len, distinct)]).tolist(), strict=False))
        self.values[name] = self.buffers.column(name).values.write(distinct)
        self._write_first_rows(name, [starts[id(column)] for column in columns], sum(map(len, distinct)))

    def _write_ragged(self, name: str, columns: Sequence[Ragged]) -> None:
        buffers = self.buffers.column(name)
        ends = np.cumsum([0, *(len(column.values) for column in columns)])
        offsets = np.concatenate([[0], *(column.offsets[1:] + end for column, end in zip(columns, ends, strict=False))])
        values = np.concatenate([column.values for column in columns]) if ends[-1] else np.zeros(1)  # never empty
        self.values[name] = buffers.values.write([torch.from_numpy(values.astype(np.int32, copy=False))])
        self.offsets[name] = buffers.offsets.write([torch.from_numpy(offsets)])
        self.pads[name] = columns[0].pad
        self._write_first_rows(name, np.cumsum([0, *map(len, columns)])[:-1].tolist(), len(offsets) - 1)

    def _write_first_rows(self, name: str, starts: list[int], rows: int) -> None:
        """Store each client's first row. A client without examples may stay for a while; it reads some existing row."""
        first = torch.tensor(starts).clamp(max=max(0, rows - 1))
        self.first_rows[name] = self.buffers.column(name).first_rows.write(first.unsqueeze(1))

    def batch(self, step: Tensor, example_weights: Tensor, widths: Widths) -> dict[str, Tensor]:
        """Return the columns of a step for the first clients. `example_weights` is [clients, rows]."""
        clients, width, tensors = len(example_weights), dict(widths), dict[str, Tensor]()
        indices = self.indices.index_select(0, step)[0, :clients, : example_weights.shape[1]]
        for name, values in self.values.items():
            rows = (self.first_rows[name][:clients] + indices).reshape(-1)
            if name not in self.offsets:
                tensors[name] = values[rows]
                continue
            tensors[name], mask, _ = pad_ragged(values, self.offsets[name], rows, width[name], self.pads[name])
            if name == "input_ids":
                tensors["attention_mask"] = mask.long()
            if name == "labels":
                lengths = mask.sum(1).view(clients, -1) * example_weights.long()
                tensors["label_positions"] = label_positions(lengths, width[name], width[_LABELS_PER_CLIENT])
        return tensors


def label_positions(lengths: Tensor, width: int, count: int) -> Tensor:
    """Return the positions of labels in a client's flattened label matrix, [clients, count], and -1 after the last one.

    `lengths` [clients, rows] are the labels per row of the matrix, which has `width` columns.
    """
    ends = lengths.cumsum(1)
    label = torch.arange(count, device=lengths.device).repeat(len(lengths), 1)
    row = torch.searchsorted(ends, label, right=True)
    valid_row = row.clamp(max=lengths.shape[1] - 1)
    position = valid_row * width + label - (ends - lengths).gather(1, valid_row)
    return torch.where(row < lengths.shape[1], position, -1)


def _max_width(examples: Examples) -> int:
    """Return the length of the corpus's longest text: the model may have no more position embeddings."""
    ids = examples.features.columns.get("input_ids")
    return ids.max_length if isinstance(ids, Ragged) else _NO_LIMIT


def _step_widths(
    name: str,
    columns: Sequence[Ragged],
    indices: np.ndarray,
    example_weights: np.ndarray,
    is_read: np.ndarray,
    max_width: int,
) -> list[dict[str, int]]:
    """Return the width of a ragged column at each step, rounded up to a few sizes that recur.

    For labels also the number of labels per client.
    """
    lengths = np.stack(
        [
            column.lengths[indices[:, i]] if len(column) else np.zeros_like(indices[:, i])
            for i, column in enumerate(columns)
        ],
        1,
    )
    longest = (lengths * is_read[:, :, None]).max(axis=(1, 2))
    most_labels = (lengths * (example_weights > 0)).sum(2).max(1)
    widths = [{name: min(round_up_width(int(width)), max(int(width), max_width))} for width in longest]
    if name == "labels":
        for step_width, count in zip(widths, most_labels, strict=True):
            step_width[_LABELS_PER_CLIENT] = min(_round_up_count(int(count)), step_width[name] * indices.shape[2])
    return widths


def _round_up_count(count: int) -> int:
    """Round up to an eighth of a power of two: the steps of one training differ by less."""
    multiple = max(8, 1 << max(0, count.bit_length() - 4))
    return max(multiple, -(-count // multiple) * multiple)
