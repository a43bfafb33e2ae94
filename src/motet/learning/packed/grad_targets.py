"""Where the backward pass of a packed model writes gradients, and the views of its leaves that this needs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

LeafViews = list[tuple[nn.Parameter, Tensor]]
_MAX_CACHED_VIEWS = 64  # sets of views; clients leave in groups, and the number of embedding rows varies


@dataclass
class GradTarget:
    """Where a parameter's gradient is written during the backward pass, instead of being returned to autograd.

    It is a view [clients, ...] of the clients' gradient vectors. A parameter that is used twice in a step adds to it.
    `parts` are the targets that it joins.
    """

    view: Tensor
    is_written: bool = False
    parts: Sequence[GradTarget] = ()

    def write_product(self, left: Tensor, right: Tensor) -> None:
        if self.is_written:
            self._matrix.baddbmm_(left, right)
        else:
            torch.bmm(left, right, out=self._matrix)
        self._mark_written()

    def write(self, grad: Tensor) -> None:
        self.view.add_(grad) if self.is_written else self.view.copy_(grad)
        self._mark_written()

    def _mark_written(self) -> None:
        self.is_written = True
        for part in self.parts:
            part.is_written = True

    @property
    def _matrix(self) -> Tensor:
        return self.view if self.view.dim() == 3 else self.view.unsqueeze(1)


def write_remaining(leaves: Iterable[nn.Parameter], targets: Mapping[int, GradTarget]) -> None:
    """Write the gradients that were returned to autograd, those of embeddings for example; zeros where there is none."""
    for leaf in leaves:
        target = targets[id(leaf)]
        if leaf.grad is not None:
            target.write(leaf.grad)
        elif leaf.requires_grad and not target.is_written:
            target.view.zero_()


@dataclass
class ViewCache:
    """The views of all leaves, by vectors and shapes. Those of 100 tensors take 2 ms, so they are kept.

    They are dropped when a buffer has moved.
    """

    generation: int = 0
    views: dict[Hashable, LeafViews] = field(default_factory=dict)

    def get(self, generation: int, key: Hashable, make: Callable[[], LeafViews]) -> LeafViews:
        if self.generation != generation or len(self.views) >= _MAX_CACHED_VIEWS:
            self.views, self.generation = {}, generation
        if key not in self.views:
            self.views[key] = make()
        return self.views[key]


def collect_leaf_grads(grads: Tensor, views: LeafViews, add: bool) -> None:
    """Copy the gradients of leaves to their views of `grads` [clients, size], or add them.

    The views follow each other. Neighbors with the same dtype are one operation.
    """
    pending: list[Tensor] = []
    start = end = 0

    def flush() -> None:
        if pending:
            target = grads[:, start:end]
            values = torch.cat(pending, 1) if len(pending) > 1 else pending[0]
            target.add_(values) if add else target.copy_(values)

    for leaf, view in views:
        grad, size = leaf.grad, view[0].numel()
        if grad is None:
            flush()
            pending, start = [], end + size
            if not add:
                view.zero_()
        else:
            if pending and pending[0].dtype != grad.dtype:
                flush()
                pending, start = [], end
            pending.append(grad.reshape(len(grads), -1))
        end += size
    flush()
