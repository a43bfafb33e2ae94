"""Objectives of distillation: how far a model's scores for a text are from a teacher's, one loss an example.

The teacher's scores are the batch's column `teacher`, always as logits: of a distribution p they are log p. No label is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.messages import message
from motet.learning.objectives import Batch, Forward


@message
@dataclass(frozen=True)
class Divergence:
    """KL(teacher ‖ model) of the softened distributions, times τ² so that τ does not change the size of the gradient."""

    temperature: float = 1.0

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        said, taught = (F.log_softmax(z / self.temperature, -1) for z in (_scores(forward, batch), batch["teacher"]))
        loss = F.kl_div(said, taught, reduction="none", log_target=True).sum(-1) * self.temperature**2
        return loss, torch.ones_like(loss)


@message
@dataclass(frozen=True)
class SquaredDistance:
    """Between the logits themselves: the mean over classes, as AdaFD's code has it, or their sum, as its equation."""

    summed: bool = False

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        each = (_scores(forward, batch) - batch["teacher"]).square()
        loss = each.sum(-1) if self.summed else each.mean(-1)
        return loss, torch.ones_like(loss)


@message
@dataclass(frozen=True)
class TaughtCrossEntropy:
    """Cross-entropy with what the teacher thinks of the classes or, `hard`, with the one it thinks likeliest."""

    hard: bool = False

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        taught = batch["teacher"]
        wanted = taught.argmax(-1) if self.hard else taught.softmax(-1)
        loss = F.cross_entropy(_scores(forward, batch), wanted, reduction="none")
        return loss, torch.ones_like(loss)


def _scores(forward: Forward, batch: Batch) -> Tensor:
    return forward(batch)["logits"].float()
