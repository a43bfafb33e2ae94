"""What is kept of a forward pass: a few numbers a row, never the whole output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.messages import message
from motet.learning.data.features import IGNORE_INDEX
from motet.learning.objectives.supervised import Batch, Forward, token_losses


class Readout(Protocol):
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


@message
@dataclass(frozen=True)
class RegressionOutputs:
    """The predicted number, and its squared error."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        said = forward(batch)["logits"].float().squeeze(-1)
        return {"predictions": said, "loss": (said - batch["labels"]).square()}


@message
@dataclass(frozen=True)
class TokenPredictions:
    """The likeliest label of every token that has one, and the loss summed over them."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        logits, labels = forward(batch)["logits"].float(), batch["labels"]
        known = labels != IGNORE_INDEX
        said = logits.argmax(-1).masked_fill(~known, IGNORE_INDEX)
        return {"predictions": said, "loss": token_losses(logits, labels).sum(1), "count": known.sum(1)}


@message
@dataclass(frozen=True)
class NextTokenAccuracy:
    """How many next tokens are right, of how many, and their loss summed: all that accuracy and perplexity need."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        labels = batch["labels"][:, 1:]
        logits = forward(batch)["logits"].float()[:, :-1]
        known = labels != IGNORE_INDEX
        right = ((logits.argmax(-1) == labels) & known).sum(1)
        return {"correct": right, "count": known.sum(1), "loss": token_losses(logits, labels).sum(1)}


@message
@dataclass(frozen=True)
class SpanLogits:
    """How likely each token is to begin and to end the answer."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        output, hidden = forward(batch), batch["attention_mask"] == 0
        found = {k: output[f"{k}_logits"].float().masked_fill(hidden, -1e9) for k in ("start", "end")}
        losses = [F.cross_entropy(found[k], batch[f"{k}s"], reduction="none") for k in ("start", "end")]
        return {**found, "loss": (losses[0] + losses[1]) / 2}


@message
@dataclass(frozen=True)
class GeneratedTokens:
    """What the model writes, by beam search, as token ids."""

    must_run_alone: ClassVar[bool] = True  # generation runs the module itself, which then holds one client's parameters
    device_batch_size: ClassVar[int] = 512  # texts, on a device: fewer and larger steps
    num_beams: int = 4
    max_new_tokens: int = 64
    min_new_tokens: int = 0
    length_penalty: float = 2.0
    no_repeat_ngram_size: int = 0

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        written = forward.module.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            num_beams=self.num_beams,
            do_sample=False,
            max_new_tokens=self.max_new_tokens,
            min_new_tokens=self.min_new_tokens or None,
            no_repeat_ngram_size=self.no_repeat_ngram_size,
            **({"length_penalty": self.length_penalty, "early_stopping": True} if self.num_beams > 1 else {}),
        )
        output = forward(batch)["logits"].float()
        known = batch["labels"] != IGNORE_INDEX
        loss = token_losses(output[:, : known.shape[1]], batch["labels"]).sum(1)
        return {"predictions": written, "loss": loss, "count": torch.as_tensor(known).sum(1)}


@message
@dataclass(frozen=True)
class FlatTokenLogits:
    """The scores of the classes for every token, end to end in one row a text; no label is looked at."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        return {"logits": forward(batch)["logits"].float().flatten(1)}


@message
@dataclass(frozen=True)
class LogitsOnly:
    """The scores of the classes alone: no label is looked at."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        return {"logits": forward(batch)["logits"].float()}
