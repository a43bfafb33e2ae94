"""What is learnt and read where a model is more than its task: it names hidden words, rewrites garbled texts, and compares.

Three objectives and three readouts for a backbone that clients of different tasks share (ATC, Dong et al. 2022). Words are
scored only where there is a label: for masked words that is a seventh of the positions, and padding is never scored. Where that
is comes with the batch (`asked`), so that no step has to look at what it computes, on a device or side by side.
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
from motet.learning.objectives.supervised import Batch, Forward, Objective


class Backbone(Protocol):
    """An encoder, a decoder that reads it, a head that names hidden words and one that contrasts."""

    def encode(self, input_ids: Tensor, attention_mask: Tensor, *types: Tensor) -> Tensor: ...
    def decode(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor: ...
    def lm_logits(self, states: Tensor) -> Tensor: ...
    def mlm_logits(self, states: Tensor) -> Tensor: ...
    def represent(self, tokens: Tensor, states: Tensor) -> Tensor: ...


def backbone_methods(forward: Forward) -> Callable[..., Tensor]:
    """What asks for a part of a `Backbone` by its name, for the rows of all clients."""
    if not hasattr(forward.module, "represent"):
        raise ConfigError(
            f"{type(forward.module).__name__} names no hidden words and has no decoder, as this algorithm needs; "
            "set model.name=mixed:<encoder>, such as mixed:minilm or mixed:tiny."
        )
    return forward.call_method


@message
@dataclass(frozen=True)
class MaskedLanguageModeling:
    """Name the words that were hidden, replaced or just asked for (`corruption.masked`)."""

    needs_full_model: ClassVar[bool] = True

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        ask = backbone_methods(forward)
        states = ask("encode", batch["input_ids"], batch["attention_mask"])
        return _where_asked(states, batch, batch["masked_positions"], lambda some: ask("mlm_logits", some))


@message
@dataclass(frozen=True)
class DenoisingReconstruction:
    """Write the text as it was before it was garbled (`corruption.noised`)."""

    needs_full_model: ClassVar[bool] = True

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        ask = backbone_methods(forward)
        states = ask("decode", batch["input_ids"], batch["attention_mask"], batch["decoder_input_ids"])
        each = torch.arange(states.shape[1], device=states.device).expand(len(states), -1)
        return _where_asked(states, batch, each, lambda some: ask("lm_logits", some))


@message
@dataclass(frozen=True)
class ContrastiveTask:
    """The task's own loss, and how far this client's reading of synthetic states is from its neighbours' (eq. 3 of ATC).

    −log(s⁺ / (s⁺ + s⁻)),  s⁺ = exp(cos(h, mean of the neighbours' h)/τ),  s⁻ = Σ exp(cos(h, h of one who is none)/τ)

    Synthetic rows are drawn apart from the task's, so adding one loss to each example keeps the mean of both.
    """

    task: Objective
    temperature: float = 1.0

    needs_full_model: ClassVar[bool] = True

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        losses, worth = self.task.losses(forward, batch)
        mine = backbone_methods(forward)("represent", batch["tokens"].long(), batch["states"].float())
        return losses + batch["has_pair"] * contrastive_loss(
            mine, batch["positives"], batch["negatives"], self.temperature
        ), worth


def contrastive_loss(mine: Tensor, near: Tensor, far: Tensor, temperature: float = 1.0) -> Tensor:
    """One loss a row; 0 without others. `near`: the neighbours' mean [rows, width]; `far`: the others [rows, others, width]."""
    toward = F.cosine_similarity(mine, near.float(), dim=-1) / temperature
    away = F.cosine_similarity(mine.unsqueeze(1), far.float(), dim=-1) / temperature
    return torch.logsumexp(torch.cat([toward.unsqueeze(1), away], 1), 1) - toward


@message
@dataclass(frozen=True)
class EncoderStates:
    """The encoder's last states, cut or filled with zeros to `length` tokens; half precision if `half`."""

    length: int
    half: bool = False

    must_run_alone: ClassVar[bool] = True

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        names = ("input_ids", "attention_mask", "token_type_ids")
        states = backbone_methods(forward)("encode", *(batch[n] for n in names if n in batch)) * batch[
            "attention_mask"
        ].unsqueeze(-1)
        states = F.pad(states, (0, 0, 0, max(0, self.length - states.shape[1])))[:, : self.length]
        return {"states": states.half() if self.half else states.float()}


@message
@dataclass(frozen=True)
class PredictedTokens:
    """The likeliest word at each of some given states."""

    must_run_alone: ClassVar[bool] = True

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        return {"tokens": backbone_methods(forward)("mlm_logits", batch["states"].float()).argmax(-1).int()}


@message
@dataclass(frozen=True)
class Representations:
    """What a client makes of given states and words: one vector each."""

    must_run_alone: ClassVar[bool] = True

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        found = backbone_methods(forward)("represent", batch["tokens"].long(), batch["states"].float())
        return {"representations": found.float()}


def _where_asked(
    states: Tensor, batch: Batch, places: Tensor, score: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """The mean loss over the labelled positions of each row, and how many there are.

    `places` says of each label where in its row of states it belongs. `asked`, [clients, words], are the places of labels in a
    client's whole table of them, −1 behind the last: all words of a client stand in one row, so that hardly any is padding.
    """
    asked, labels = batch["label_positions"], batch["labels"]
    clients, known, at = len(asked), asked >= 0, asked.clamp(min=0)
    place = at // max(1, labels.shape[1]) * states.shape[1] + places[:, : labels.shape[1]].reshape(clients, -1).gather(
        1, at
    )
    chosen = states.reshape(clients, -1, states.shape[-1]).gather(
        1, place.unsqueeze(-1).expand(-1, -1, states.shape[-1])
    )
    wanted = labels.reshape(clients, -1).gather(1, at).masked_fill(~known, IGNORE_INDEX)
    each = F.cross_entropy(
        score(chosen).float().flatten(0, 1), wanted.flatten(), reduction="none", ignore_index=IGNORE_INDEX
    )
    table = each.new_zeros(
        clients, labels.numel() // clients + 1
    )  # the last is for what is none: no two words meet in a sum
    table = table.scatter(1, torch.where(known, asked, table.shape[1] - 1), each.view_as(wanted))
    count = (labels != IGNORE_INDEX).sum(1)
    return table[:, :-1].reshape(labels.shape).sum(1) / count.clamp(min=1), count.float()
