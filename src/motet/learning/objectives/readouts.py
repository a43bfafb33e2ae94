"""What is kept of a forward pass: a few numbers a row, never the whole output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.messages import message
from motet.learning.objectives.supervised import IGNORED, Batch, Forward, token_losses


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
class Numbers:
    """The predicted number, and its squared error."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        said = forward(batch)["logits"].float().squeeze(-1)
        return {"said": said, "loss": (said - batch["labels"]).square()}


@message
@dataclass(frozen=True)
class Tokens:
    """The likeliest label of every token that has one, and the loss summed over them."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        logits, labels = forward(batch)["logits"].float(), batch["labels"]
        known = labels != IGNORED
        said = logits.argmax(-1).masked_fill(~known, IGNORED)
        return {"said": said, "loss": token_losses(logits, labels).sum(1), "count": known.sum(1)}


@message
@dataclass(frozen=True)
class NextTokens:
    """How many next tokens are right, of how many, and their loss summed: all that accuracy and perplexity need."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        labels = batch["labels"][:, 1:]
        logits = forward(batch)["logits"].float()[:, :-1]
        known = labels != IGNORED
        right = ((logits.argmax(-1) == labels) & known).sum(1)
        return {"right": right, "count": known.sum(1), "loss": token_losses(logits, labels).sum(1)}


@message
@dataclass(frozen=True)
class Spans:
    """How likely each token is to begin and to end the answer."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        output, hidden = forward(batch), batch["attention_mask"] == 0
        found = {k: output[f"{k}_logits"].float().masked_fill(hidden, -1e9) for k in ("start", "end")}
        losses = [F.cross_entropy(found[k], batch[f"{k}s"], reduction="none") for k in ("start", "end")]
        return {**found, "loss": (losses[0] + losses[1]) / 2}


@message
@dataclass(frozen=True)
class Generated:
    """What the model writes, by beam search, as token ids."""

    must_run_alone: ClassVar[bool] = True  # generation runs the module itself, which then holds one client's parameters
    device_batch_size: ClassVar[int] = 512  # texts, on a device: fewer and larger steps
    beams: int = 4
    tokens: int = 64
    shortest: int = 0
    length_penalty: float = 2.0
    no_repeat: int = 0

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        written = forward.module.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            num_beams=self.beams,
            do_sample=False,
            max_new_tokens=self.tokens,
            min_new_tokens=self.shortest or None,
            no_repeat_ngram_size=self.no_repeat,
            **({"length_penalty": self.length_penalty, "early_stopping": True} if self.beams > 1 else {}),
        )
        output = forward(batch)["logits"].float()
        known = batch["labels"] != IGNORED
        loss = token_losses(output[:, : known.shape[1]], batch["labels"]).sum(1)
        return {"said": written, "loss": loss, "count": torch.as_tensor(known).sum(1)}


@message
@dataclass(frozen=True)
class FlatScores:
    """The scores of the classes for every token, end to end in one row a text; no label is looked at."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        return {"logits": forward(batch)["logits"].float().flatten(1)}


@message
@dataclass(frozen=True)
class Scores:
    """The scores of the classes alone: no label is looked at."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        return {"logits": forward(batch)["logits"].float()}
