"""Objectives: from a batch to one loss an example, and how much each example counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.messages import message
from motet.learning.data.features import IGNORE_INDEX

Batch = Mapping[str, Tensor]


class Forward(Protocol):
    """A model to be called with a batch; its module, for those who need more of it (generation)."""

    @property
    def module(self) -> Any: ...
    def __call__(self, batch: Batch) -> Mapping[str, Tensor]: ...
    def call_method(self, name: str, *inputs: Tensor) -> Tensor:
        """What a method of the module says to [clients·rows, …]."""


class Objective(Protocol):
    """A client's loss is Σ worth·loss / Σ worth over its rows: token tasks count an example by its tokens."""

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]: ...


@message
@dataclass(frozen=True)
class CrossEntropy:
    """One label an example."""

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        loss = F.cross_entropy(forward(batch)["logits"].float(), batch["labels"], reduction="none")
        return loss, torch.ones_like(loss)


@message
@dataclass(frozen=True)
class SquaredError:
    """One number an example."""

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        loss = (forward(batch)["logits"].float().squeeze(-1) - batch["labels"]).square()
        return loss, torch.ones_like(loss)


@message
@dataclass(frozen=True)
class TokenCrossEntropy:
    """A label for every token, or for some; an example counts by its labelled tokens.

    `shift` = 1 where a token predicts the next one. `smoothing` spreads that much of the probability evenly over the other
    tokens; padding (`pad`) gets none of it.
    """

    shift: int = 0
    smoothing: float = 0.0
    pad: int = -1

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        labels = batch["labels"][:, self.shift :]
        logits = forward(batch)["logits"].float()[:, : labels.shape[1]]
        count = (labels != IGNORE_INDEX).sum(1)
        each = token_losses(logits, labels, self.smoothing, self.pad)
        return each.sum(1) / count.clamp(min=1), count.float()


def token_losses(logits: Tensor, labels: Tensor, smoothing: float = 0.0, pad: int = -1) -> Tensor:
    """[rows, tokens]; 0 where there is no label."""
    if not smoothing:
        return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=IGNORE_INDEX)
    chances = F.log_softmax(logits, -1)
    known = labels != IGNORE_INDEX
    right = chances.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    others = chances.sum(-1) - right - (chances[..., pad] if pad >= 0 else 0)
    share = smoothing / (logits.shape[-1] - (2 if pad >= 0 else 1))
    return torch.where(known, -(1 - smoothing) * right - share * others, 0.0)


@message
@dataclass(frozen=True)
class SpanCrossEntropy:
    """Where an answer begins and ends. Padding is no candidate: else the loss would depend on how wide a neighbour is."""

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        output, hidden = forward(batch), batch["attention_mask"] == 0
        ends = [output[k].float().masked_fill(hidden, -1e9) for k in ("start_logits", "end_logits")]
        first, last = (
            F.cross_entropy(x, batch[y], reduction="none") for x, y in zip(ends, ("starts", "ends"), strict=True)
        )
        return (first + last) / 2, torch.ones_like(first)
