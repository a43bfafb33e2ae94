"""Direct preference optimization (DPO): prefer the chosen answer to the rejected one, compared with a reference model.

The loss is -log σ(β [(log π(c) - log π₀(c)) - (log π(r) - log π₀(r))]), where π₀ is the model before training. A batch has
two completions of each prompt: the columns of a completion (see `completion`) for the chosen one, and the same columns
with the prefix `rejected_` for the other. Its column `reference` is log π₀(c) - log π₀(r), which never changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.messages import message
from motet.learning.objectives.completion import completion_logits
from motet.learning.objectives.readouts import Readout
from motet.learning.objectives.supervised import Batch, Forward, Objective, token_losses

REJECTED, REFERENCE = "rejected_", "reference"
COMPLETION_COLUMNS = ("input_ids", "labels", "completion_start")


@message
@dataclass(frozen=True)
class DirectPreference(Objective):
    """The loss of DPO. `beta` is how strongly the model is kept near the reference."""

    needs_full_model: ClassVar[bool] = True
    beta: float = 0.1

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        rewards = self.beta * (_log_ratios(forward, batch) - batch[REFERENCE])
        losses = F.softplus(-rewards)
        return losses, losses.new_ones(len(losses))


@message
@dataclass(frozen=True)
class LogRatios(Readout):
    """log π(c) - log π(r) of each example."""

    must_run_alone: ClassVar[bool] = True  # so that the numbers do not depend on which clients are in a batch

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        return {REFERENCE: _log_ratios(forward, batch)}


@message
@dataclass(frozen=True)
class RewardMargins(Readout):
    """The reward of the chosen answer minus that of the rejected one; rewards are β log(π / π₀)."""

    beta: float = 0.1

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        margins = self.beta * (_log_ratios(forward, batch) - batch[REFERENCE])
        return {"margin": margins, "loss": F.softplus(-margins)}


def _log_ratios(forward: Forward, batch: Batch) -> Tensor:
    rejected = {name: batch[f"{REJECTED}{name}"] for name in COMPLETION_COLUMNS}
    return _log_likelihoods(forward, batch) - _log_likelihoods(forward, rejected)


def _log_likelihoods(forward: Forward, batch: Batch) -> Tensor:
    """Return the log-likelihood of each completion, summed over its tokens."""
    return -token_losses(completion_logits(forward, batch).float(), batch["labels"]).sum(1)
