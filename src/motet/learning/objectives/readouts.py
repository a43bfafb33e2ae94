"""Readouts: what inference keeps of a forward pass. A few numbers per row, never the whole output."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.attributes import attribute
from motet.core.messages import message
from motet.learning.data.features import IGNORE_INDEX
from motet.learning.objectives.supervised import Batch, Forward, token_losses

# Models bring settings of generation with them, such as a penalty for words of the prompt. A score is not to depend on them.
PLAIN_GENERATION = {"do_sample": False, "repetition_penalty": 1.0}


class Readout(Protocol):
    """What inference keeps of a forward pass. Every readout inherits from this class and is a frozen `@message`."""

    @attribute
    def must_run_alone(self) -> bool:
        """True if the readout calls the module itself, which holds the parameters of one client."""
        return False

    @attribute
    def needs_full_model(self) -> bool:
        """True if the readout needs more than the forward pass, so that no layer may be cut off."""
        return False

    @attribute
    def device_batch_size(self) -> int | None:
        """The number of texts per batch on a GPU; None: that of the job."""
        return None

    @attribute
    def chunk_rows(self) -> int:
        """Rows that a CPU worker infers at a time. Constant, so that results do not depend on the number of workers."""
        return 512

    @attribute
    def max_written_tokens(self) -> int:
        """The largest number of tokens that are generated for a row, over all beams."""
        return 0

    @abstractmethod
    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        """Run the model and return named tensors with one row per example."""


@message
@dataclass(frozen=True)
class Logits(Readout):
    """The class logits, and the loss if labels are known."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        logits = forward(batch)["logits"].float()
        if "labels" not in batch:
            return {"logits": logits}
        return {"logits": logits, "loss": F.cross_entropy(logits, batch["labels"], reduction="none")}


@message
@dataclass(frozen=True)
class LogitsOnly(Readout):
    """The class logits. Labels are not used, even if there are any."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        return {"logits": forward(batch)["logits"].float()}


@message
@dataclass(frozen=True)
class FlatTokenLogits(Readout):
    """The class logits of all tokens, flattened to one row per text. Labels are not used."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        return {"logits": forward(batch)["logits"].float().flatten(1)}


@message
@dataclass(frozen=True)
class RegressionOutputs(Readout):
    """The predicted number and its squared error."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        predictions = forward(batch)["logits"].float().squeeze(-1)
        return {"predictions": predictions, "loss": (predictions - batch["labels"]).square()}


@message
@dataclass(frozen=True)
class TokenPredictions(Readout):
    """The predicted class of every labeled token, and the loss summed over them."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        logits, labels = forward(batch)["logits"].float(), batch["labels"]
        has_label = labels != IGNORE_INDEX
        predictions = logits.argmax(-1).masked_fill(~has_label, IGNORE_INDEX)
        return {"predictions": predictions, "loss": token_losses(logits, labels).sum(1), "count": has_label.sum(1)}


@message
@dataclass(frozen=True)
class NextTokenAccuracy(Readout):
    """Correct next tokens, labeled tokens and summed loss per text: enough for accuracy and perplexity."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        labels = batch["labels"][:, 1:]
        logits = forward(batch)["logits"].float()[:, :-1]
        has_label = labels != IGNORE_INDEX
        correct = ((logits.argmax(-1) == labels) & has_label).sum(1)
        return {"correct": correct, "count": has_label.sum(1), "loss": token_losses(logits, labels).sum(1)}


@message
@dataclass(frozen=True)
class SpanLogits(Readout):
    """The logits of each token to start and to end the answer, and the loss."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        output, is_padding = forward(batch), batch["attention_mask"] == 0
        logits = {name: output[f"{name}_logits"].float().masked_fill(is_padding, -1e9) for name in ("start", "end")}
        losses = [F.cross_entropy(logits[name], batch[f"{name}s"], reduction="none") for name in ("start", "end")]
        return {**logits, "loss": (losses[0] + losses[1]) / 2}


@message
@dataclass(frozen=True)
class GeneratedTokens(Readout):
    """Token ids generated by beam search."""

    must_run_alone: ClassVar[bool] = True
    device_batch_size: ClassVar[int] = 512  # fewer, larger decoding steps
    num_beams: int = 4
    max_new_tokens: int = 64
    min_new_tokens: int = 0
    length_penalty: float = 2.0
    no_repeat_ngram_size: int = 0

    @property
    def max_written_tokens(self) -> int:
        return self.num_beams * self.max_new_tokens

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        generated = forward.module.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            **PLAIN_GENERATION,
            num_beams=self.num_beams,
            max_new_tokens=self.max_new_tokens,
            **({"min_new_tokens": self.min_new_tokens} if self.min_new_tokens else {"min_length": 0}),
            no_repeat_ngram_size=self.no_repeat_ngram_size,
            **({"length_penalty": self.length_penalty, "early_stopping": True} if self.num_beams > 1 else {}),
        )
        logits = forward(batch)["logits"].float()
        has_label = batch["labels"] != IGNORE_INDEX
        loss = token_losses(logits[:, : has_label.shape[1]], batch["labels"]).sum(1)
        return {"predictions": generated, "loss": loss, "count": torch.as_tensor(has_label).sum(1)}
