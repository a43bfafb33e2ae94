"""Objectives: from a batch to one loss an example, and how much each example counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.messages import message

Batch = Mapping[str, Tensor]
Forward = Callable[[Batch], Mapping[str, Tensor]]


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


class Readout(Protocol):
    """What is kept of a forward pass: a few numbers a row, never the whole output."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]: ...


@message
@dataclass(frozen=True)
class Logits:
    """The scores of the classes, and the loss where the labels are known."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        logits = forward(batch)["logits"].float()
        if "labels" not in batch:
            return {"logits": logits}
        return {"logits": logits, "loss": F.cross_entropy(logits, batch["labels"], reduction="none")}
