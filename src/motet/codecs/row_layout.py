"""How one vector falls into rows, each of which may have a scale of its own. Both sides know it: it never travels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from motet.core.params import Layout


@dataclass(frozen=True)
class RowLayout:
    """(How many, how long) for each tensor in turn: a matrix has its rows, a vector is one row."""

    blocks: tuple[tuple[int, int], ...]

    @staticmethod
    def of(layout: Layout) -> RowLayout:
        shapes = [shape or (1,) for shape in layout.shapes]
        return RowLayout(tuple((math.prod(shape[:-1]), shape[-1]) for shape in shapes))

    @property
    def size(self) -> int:
        return sum(many * long for many, long in self.blocks)

    @property
    def count(self) -> int:
        return sum(many for many, long in self.blocks if long)

    def largest(self, vector: Tensor) -> Tensor:
        """The largest absolute value of each row."""
        sizes = [many * long for many, long in self.blocks]
        pieces = vector.abs().split(sizes)  # type: ignore[no-untyped-call]
        shaped = zip(pieces, self.blocks, strict=True)
        found = [piece.view(many, long).amax(1) for piece, (many, long) in shaped if piece.numel()]
        return torch.cat(found) if found else vector[:0]

    def lengths(self) -> Tensor:
        many, long = (torch.tensor(column) for column in zip(*(b for b in self.blocks if b[0] * b[1]), strict=True))
        return torch.repeat_interleave(long, many)

    def times(self, vector: Tensor, each: Tensor) -> Tensor:
        """Every number times the value of its row."""
        return self._with(torch.mul, vector, each)

    def over(self, vector: Tensor, each: Tensor) -> Tensor:
        """Every number over the value of its row."""
        return self._with(torch.div, vector, each)

    def _with(self, change: Callable[..., Tensor], vector: Tensor, each: Tensor) -> Tensor:
        changed, at, row = torch.empty_like(vector), 0, 0
        for many, long in self.blocks:
            if many * long:
                place = slice(at, at + many * long)
                change(
                    vector[place].view(many, long), each[row : row + many, None], out=changed[place].view(many, long)
                )
                at, row = at + many * long, row + many
        return changed
