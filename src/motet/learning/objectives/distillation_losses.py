"""Distillation objectives: the distance between a model's logits and a teacher's. No labels are needed.

The batch column `teacher_logits` holds logits per text, or per token; for a distribution p, log p works too. For
tokens, only those marked by `teacher_mask` count, and an example's weight is their number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.errors import ConfigError
from motet.core.messages import message
from motet.learning.objectives.supervised import Batch, Forward, Objective


@message
@dataclass(frozen=True)
class KLDivergence(Objective):
    """KL(teacher || model) at temperature τ, times τ² so that the gradient's size does not depend on τ."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ConfigError(
                f"algorithm.temperature is {self.temperature}; it must be > 0. Write e.g. algorithm.temperature=1."
            )

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        logits, teacher = _aligned_logits(forward, batch)
        log_probs, teacher_log_probs = (F.log_softmax(z / self.temperature, -1) for z in (logits, teacher))
        loss = F.kl_div(log_probs, teacher_log_probs, reduction="none", log_target=True).sum(-1) * self.temperature**2
        return _reduce_tokens(loss, batch)


@message
@dataclass(frozen=True)
class LogitSquaredError(Objective):
    """Squared error between logits: the mean over classes as in AdaFD's code, or the sum as in its equation."""

    summed: bool = False

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        logits, teacher = _aligned_logits(forward, batch)
        errors = (logits - teacher).square()
        return _reduce_tokens(errors.sum(-1) if self.summed else errors.mean(-1), batch)


@message
@dataclass(frozen=True)
class TeacherCrossEntropy(Objective):
    """Cross-entropy with the teacher's class probabilities or, if `hard`, with its most likely class."""

    hard: bool = False

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        logits, teacher = _aligned_logits(forward, batch)
        targets = teacher.argmax(-1).flatten() if self.hard else teacher.softmax(-1).flatten(0, -2)
        loss = F.cross_entropy(logits.flatten(0, -2), targets, reduction="none")
        return _reduce_tokens(loss.view(logits.shape[:-1]), batch)


def _aligned_logits(forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the model's and the teacher's logits.

    Token logits are cut to the shorter of the two; the rest is padding.
    """
    logits, teacher = forward(batch)["logits"].float(), batch["teacher_logits"]
    if teacher.dim() == 2:
        return logits, teacher
    width = min(logits.shape[1], teacher.shape[1])
    return logits[:, :width], teacher[:, :width]


def _reduce_tokens(loss: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return losses and weights per example, from losses per example or per token."""
    if loss.dim() == 1:
        return loss, torch.ones_like(loss)
    mask = batch["teacher_mask"][:, : loss.shape[1]]
    count = mask.sum(1)
    return (loss * mask).sum(1) / count.clamp(min=1), count
