"""Objectives and readouts for a backbone that clients with different tasks share (ATC, Dong et al. 2022).

The objectives predict masked tokens, reconstruct corrupted texts and contrast clients. Token scores are computed only
where there is a label: a seventh of the positions for masked tokens, and never for padding. The batch column
`label_positions` says where that is, so that no step depends on values it has computed. CUDA graphs and packed clients
need that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.errors import ConfigError
from motet.core.messages import message
from motet.learning.data.features import IGNORE_INDEX
from motet.learning.objectives.readouts import Readout
from motet.learning.objectives.supervised import Batch, Forward, Objective


class Backbone(Protocol):
    """An encoder, a decoder, a masked-token head and a head for contrastive representations."""

    def encode(self, input_ids: Tensor, attention_mask: Tensor, *token_type_ids: Tensor) -> Tensor: ...
    def decode(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor: ...
    def lm_logits(self, states: Tensor) -> Tensor: ...
    def mlm_logits(self, states: Tensor) -> Tensor: ...
    def represent(self, tokens: Tensor, states: Tensor) -> Tensor: ...


def backbone_methods(forward: Forward) -> Callable[..., Tensor]:
    """Return `forward.call_method`, after checking that the module is a `Backbone`."""
    if not hasattr(forward.module, "represent"):
        raise ConfigError(
            f"{type(forward.module).__name__} has no masked-token head and no decoder, which this algorithm needs; "
            "set model.name=mixed:<encoder>, such as mixed:minilm or mixed:tiny."
        )
    return forward.call_method


@message
@dataclass(frozen=True)
class MaskedLanguageModeling(Objective):
    """Predict masked tokens (`data.denoising.mask_tokens`)."""

    needs_full_model: ClassVar[bool] = True
    needs_whole_batch: ClassVar[bool] = True

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        call = backbone_methods(forward)
        states = call("encode", batch["input_ids"], batch["attention_mask"])
        return _labeled_token_losses(
            states, batch, batch["masked_positions"], lambda labeled: call("mlm_logits", labeled)
        )


@message
@dataclass(frozen=True)
class DenoisingReconstruction(Objective):
    """Generate the original of a corrupted text (`data.denoising.corrupt_texts`)."""

    needs_full_model: ClassVar[bool] = True
    needs_whole_batch: ClassVar[bool] = True

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        call = backbone_methods(forward)
        states = call("decode", batch["input_ids"], batch["attention_mask"], batch["decoder_input_ids"])
        positions = torch.arange(states.shape[1], device=states.device).expand(len(states), -1)
        return _labeled_token_losses(states, batch, positions, lambda labeled: call("lm_logits", labeled))


@message
@dataclass(frozen=True)
class ContrastiveTask(Objective):
    """The task loss plus a contrastive loss on synthetic hidden states (eq. 3 of ATC).

        -log(s⁺ / (s⁺ + s⁻)),  s⁺ = exp(cos(h, mean of the neighbors' h) / τ),  s⁻ = Σ exp(cos(h, another client's h) / τ)

    Synthetic rows are drawn independently of the task's rows, so adding one loss to each example preserves both means.
    """

    task: Objective
    temperature: float = 1.0

    needs_full_model: ClassVar[bool] = True

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        losses, weights = self.task.losses(forward, batch)
        own = backbone_methods(forward)("represent", batch["tokens"].long(), batch["states"].float())
        contrastive = contrastive_loss(own, batch["positives"], batch["negatives"], self.temperature)
        return losses + batch["has_pair"] * contrastive, weights


def contrastive_loss(own: Tensor, positives: Tensor, negatives: Tensor, temperature: float = 1.0) -> Tensor:
    """Return one loss per row; 0 without negatives.

    `own` and `positives` (the neighbors' mean) are [rows, width], `negatives` is [rows, others, width].
    """
    positive = F.cosine_similarity(own, positives.float(), dim=-1) / temperature
    negative = F.cosine_similarity(own.unsqueeze(1), negatives.float(), dim=-1) / temperature
    return torch.logsumexp(torch.cat([positive.unsqueeze(1), negative], 1), 1) - positive


@message
@dataclass(frozen=True)
class EncoderStates(Readout):
    """The encoder's last hidden states, cut or zero-padded to `length` tokens; float16 if `half`."""

    length: int
    half: bool = False

    must_run_alone: ClassVar[bool] = True

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        names = ("input_ids", "attention_mask", "token_type_ids")
        states = backbone_methods(forward)("encode", *(batch[name] for name in names if name in batch))
        states = states * batch["attention_mask"].unsqueeze(-1)
        states = F.pad(states, (0, 0, 0, max(0, self.length - states.shape[1])))[:, : self.length]
        return {"states": states.half() if self.half else states.float()}


@message
@dataclass(frozen=True)
class PredictedTokens(Readout):
    """The most likely token at each hidden state of the batch."""

    must_run_alone: ClassVar[bool] = True

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        return {"tokens": backbone_methods(forward)("mlm_logits", batch["states"].float()).argmax(-1).int()}


@message
@dataclass(frozen=True)
class Representations(Readout):
    """A client's contrastive representation of hidden states and their tokens: one vector per row."""

    must_run_alone: ClassVar[bool] = True

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        vectors = backbone_methods(forward)("represent", batch["tokens"].long(), batch["states"].float())
        return {"representations": vectors.float()}


def _labeled_token_losses(
    states: Tensor, batch: Batch, token_positions: Tensor, score: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the mean loss over the labeled tokens of each row, and their number.

    `token_positions` maps each label to its token in `states`. `label_positions` [clients, labels] holds the positions
    of labels in a client's flattened label matrix, and -1 after the last one: all labels of a client are in one row, so
    that there is little padding.
    """
    positions, labels = batch["label_positions"], batch["labels"]
    clients, is_label, at = len(positions), positions >= 0, positions.clamp(min=0)
    columns = token_positions[:, : labels.shape[1]].reshape(clients, -1).gather(1, at)
    state_index = at // max(1, labels.shape[1]) * states.shape[1] + columns
    labeled = states.reshape(clients, -1, states.shape[-1]).gather(
        1, state_index.unsqueeze(-1).expand(-1, -1, states.shape[-1])
    )
    targets = labels.reshape(clients, -1).gather(1, at).masked_fill(~is_label, IGNORE_INDEX)
    losses = F.cross_entropy(
        score(labeled).float().flatten(0, 1), targets.flatten(), reduction="none", ignore_index=IGNORE_INDEX
    )
    # Scatter back to the label matrix. The extra last column takes padding, so that no two labels share an element.
    table = losses.new_zeros(clients, labels.numel() // clients + 1)
    table = table.scatter(1, torch.where(is_label, positions, table.shape[1] - 1), losses.view_as(targets))
    count = (labels != IGNORE_INDEX).sum(1)
    return table[:, :-1].reshape(labels.shape).sum(1) / count.clamp(min=1), count.float()
