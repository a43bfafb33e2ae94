"""Objectives: a batch in, one loss per example and its weight out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.attributes import attribute
from motet.core.messages import message
from motet.learning.data.features import IGNORE_INDEX

Batch = Mapping[str, Tensor]


class Forward(Protocol):
    """A model that can be called with a batch."""

    @property
    def module(self) -> Any:
        """The underlying module, for operations beyond a forward pass (generation)."""

    def __call__(self, batch: Batch) -> Mapping[str, Tensor]: ...
    def call_method(self, name: str, *inputs: Tensor) -> Tensor:
        """Call a method of the module instead of its forward pass. Inputs and output are [clients * rows, ...]."""

    def apply(self, function: Callable[..., Tensor], *inputs: Tensor, masked: bool = True) -> Tensor:
        """Call `function(module, *inputs)` instead of the forward pass. Inputs and output are [clients * rows, ...].

        `masked` is False if the function passes no attention mask to the module; that allows faster attention.
        """


class Objective(Protocol):
    """A client's loss is sum(weights * losses) / sum(weights). Token tasks weight an example by its labeled tokens.

    Every objective inherits from this class. It is a frozen dataclass with `@message`, because jobs are sent to workers.
    """

    @attribute
    def needs_full_model(self) -> bool:
        """True if the loss calls other methods of the module than its forward pass, so that no layer may be cut off."""
        return False

    @attribute
    def needs_whole_batch(self) -> bool:
        """True if some column of a batch has no row for each example, so that the batch cannot be split."""
        return False

    @abstractmethod
    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses and the weights, both [clients * rows]."""


@message
@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Classification with one label per example. An example counts as much as the weight of its class; empty: 1."""

    class_weights: tuple[float, ...] = ()

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        loss = F.cross_entropy(forward(batch)["logits"].float(), batch["labels"], reduction="none")
        if not self.class_weights:
            return loss, torch.ones_like(loss)
        return loss, _constant(self.class_weights, loss.device)[batch["labels"]]


@lru_cache(maxsize=64)
def _constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return a tensor that is made once, because no host memory can be read while a CUDA graph is captured."""
    return torch.tensor(values, device=device)


@message
@dataclass(frozen=True)
class SquaredError(Objective):
    """Regression with one number per example."""

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        loss = (forward(batch)["logits"].float().squeeze(-1) - batch["labels"]).square()
        return loss, torch.ones_like(loss)


@message
@dataclass(frozen=True)
class TokenCrossEntropy(Objective):
    """Cross-entropy per token; an example's weight is the number of its labeled tokens.

    `shift` is 1 if a token predicts the next one. `smoothing` spreads that much probability evenly over the other
    tokens, except for the padding token `pad`.
    """

    shift: int = 0
    smoothing: float = 0.0
    pad: int = -1

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        logits, labels = forward(batch)["logits"].float(), batch["labels"][:, self.shift :]
        # Labels get the width of the logits: a part of the logits would be copied, and they are large.
        labels = F.pad(labels, (0, logits.shape[1] - labels.shape[1]), value=IGNORE_INDEX)
        count = (labels != IGNORE_INDEX).sum(1)
        per_token = token_losses(logits, labels, self.smoothing, self.pad)
        return per_token.sum(1) / count.clamp(min=1), count.float()


def token_losses(logits: Tensor, labels: Tensor, smoothing: float = 0.0, pad: int = -1) -> Tensor:
    """Return the cross-entropy of each token, [rows, tokens]; 0 where the label is IGNORE_INDEX."""
    if not smoothing:
        # Flat, because the kernel for [rows, vocabulary, tokens] takes ten times as long with a large vocabulary.
        losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=IGNORE_INDEX)
        return losses.view(labels.shape)
    log_probs = F.log_softmax(logits, -1)
    has_label = labels != IGNORE_INDEX
    target = log_probs.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    others = log_probs.sum(-1) - target - (log_probs[..., pad] if pad >= 0 else 0)
    share = smoothing / (logits.shape[-1] - (2 if pad >= 0 else 1))
    return torch.where(has_label, -(1 - smoothing) * target - share * others, 0.0)


@message
@dataclass(frozen=True)
class SpanCrossEntropy(Objective):
    """Cross-entropy of an answer's start and end.

    Padding is masked out: otherwise the loss would depend on the longest text in the batch.
    """

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        output, is_padding = forward(batch), batch["attention_mask"] == 0
        logits = [output[name].float().masked_fill(is_padding, -1e9) for name in ("start_logits", "end_logits")]
        start_loss, end_loss = (
            F.cross_entropy(scores, batch[labels], reduction="none")
            for scores, labels in zip(logits, ("starts", "ends"), strict=True)
        )
        return (start_loss + end_loss) / 2, torch.ones_like(start_loss)
