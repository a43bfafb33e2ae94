"""Objectives of distillation: how far a model's scores are from a teacher's, one loss an example. No label is needed.

The teacher's scores are the batch's column `teacher`, always as logits: of a distribution p they are log p. They are of a text,
or of its tokens; of tokens only those count that `taught` marks, and an example counts by their number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.errors import ConfigError
from motet.core.messages import message
from motet.learning.objectives.supervised import Batch, Forward


@message
@dataclass(frozen=True)
class KLDivergence:
    """KL(teacher ‖ model) of the softened distributions, times τ² so that τ does not change the size of the gradient."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ConfigError(f"algorithm.temperature is {self.temperature}; it is a number above 0 (1: as it is).")

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        said, taught = (F.log_softmax(z / self.temperature, -1) for z in _both(forward, batch))
        loss = F.kl_div(said, taught, reduction="none", log_target=True).sum(-1) * self.temperature**2
        return _by_example(loss, batch)


@message
@dataclass(frozen=True)
class LogitSquaredError:
    """Between the logits themselves: the mean over classes, as AdaFD's code has it, or their sum, as its equation."""

    summed: bool = False

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        said, taught = _both(forward, batch)
        each = (said - taught).square()
        return _by_example(each.sum(-1) if self.summed else each.mean(-1), batch)


@message
@dataclass(frozen=True)
class TeacherCrossEntropy:
    """Cross-entropy with what the teacher thinks of the classes or, `hard`, with the one it thinks likeliest."""

    hard: bool = False

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        said, taught = _both(forward, batch)
        wanted = taught.argmax(-1).flatten() if self.hard else taught.softmax(-1).flatten(0, -2)
        loss = F.cross_entropy(said.flatten(0, -2), wanted, reduction="none")
        return _by_example(loss.view(said.shape[:-1]), batch)


def _both(forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
    """The model's scores and the teacher's. Of tokens a batch may have more than the teacher has, or fewer: beyond the shorter
    of the two there is padding."""
    said, taught = forward(batch)["logits"].float(), batch["teacher_logits"]
    if taught.dim() == 2:
        return said, taught
    width = min(said.shape[1], taught.shape[1])
    return said[:, :width], taught[:, :width]


def _by_example(loss: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """[rows], or [rows, tokens] of which the taught ones count."""
    if loss.dim() == 1:
        return loss, torch.ones_like(loss)
    taught = batch["teacher_mask"][:, : loss.shape[1]]
    count = taught.sum(1)
    return (loss * taught).sum(1) / count.clamp(min=1), count
