"""Batches that are computed in parts, so that a large batch fits in memory."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from motet.learning.objectives.supervised import Batch


def count_rows(batch: Batch, clients: int) -> int:
    """Return the number of rows that each client has in a batch, whose columns are [clients * rows, ...]."""
    return max(len(column) for column in batch.values()) // clients


def split_batch(
    batch: Batch, example_weights: Tensor | None, clients: int, size: int
) -> Iterator[tuple[Batch, Tensor | None]]:
    """Yield parts of at most `size` rows of each client, with their weights [clients, rows].

    A column without a row for each example stays whole. Objectives that read one set `needs_whole_batch`.
    """
    rows = count_rows(batch, clients)

    def select(column: Tensor, part: slice) -> Tensor:
        if len(column) != clients * rows:
            return column
        return column.view(clients, rows, *column.shape[1:])[:, part].flatten(0, 1)

    for start in range(0, rows, size):
        part = slice(start, start + size)
        columns = {name: select(column, part) for name, column in batch.items()}
        yield columns, None if example_weights is None else example_weights[:, part]
