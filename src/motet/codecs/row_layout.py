"""How a flat vector is divided into rows, each with its own scale.

Both sides derive it from the layout; it is never sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from motet.core.params import Layout


@dataclass(frozen=True)
class RowLayout:
    """(Number of rows, row length) of each tensor in turn. A vector is one row."""

    blocks: tuple[tuple[int, int], ...]

    @staticmethod
    def from_layout(layout: Layout) -> RowLayout:
        shapes = [shape or (1,) for shape in layout.shapes]
        return RowLayout(tuple((math.prod(shape[:-1]), shape[-1]) for shape in shapes))

    @property
    def size(self) -> int:
        """The number of elements."""
        return sum(count * length for count, length in self.blocks)

    @property
    def row_count(self) -> int:
        return sum(count for count, length in self.blocks if length)

    def max_abs(self, vector: Tensor) -> Tensor:
        """Return the largest absolute value of each row."""
        sizes = [count * length for count, length in self.blocks]
        pieces = vector.abs().split(sizes)  # type: ignore[no-untyped-call]
        shaped = zip(pieces, self.blocks, strict=True)
        maxima = [piece.view(count, length).amax(1) for piece, (count, length) in shaped if piece.numel()]
        return torch.cat(maxima) if maxima else vector[:0]

    def row_lengths(self) -> Tensor:
        counts, lengths = zip(*((count, length) for count, length in self.blocks if count * length), strict=True)
        return torch.repeat_interleave(torch.tensor(lengths), torch.tensor(counts))

    def multiply(self, vector: Tensor, row_values: Tensor) -> Tensor:
        """Multiply every element by the value of its row."""
        return self._apply(torch.mul, vector, row_values)

    def divide(self, vector: Tensor, row_values: Tensor) -> Tensor:
        """Divide every element by the value of its row."""
        return self._apply(torch.div, vector, row_values)

    def _apply(self, operation: Callable[..., Tensor], vector: Tensor, row_values: Tensor) -> Tensor:
        result, start, row = torch.empty_like(vector), 0, 0
        for count, length in self.blocks:
            if count * length:
                block = slice(start, start + count * length)
                matrix, out = vector[block].view(count, length), result[block].view(count, length)
                operation(matrix, row_values[row : row + count, None], out=out)
                start, row = start + count * length, row + count
        return result
