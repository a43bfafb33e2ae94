"""What is learnt and read where a model is more than its task: it names hidden words, rewrites garbled texts, and compares.

Three objectives and three readouts for a backbone that clients of different tasks share (ATC, Dong et al. 2022). Words are
scored only where there is a label: for masked words that is a seventh of the positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.errors import ConfigError
from motet.core.messages import message
from motet.learning.objectives import IGNORED, Batch, Forward, Objective


class Backbone(Protocol):
    """An encoder, a decoder that reads it, a head that names hidden words and one that contrasts."""

    def hidden(self, batch: Batch) -> Tensor: ...
    def decoded(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor: ...
    def written(self, states: Tensor) -> Tensor: ...
    def named(self, states: Tensor) -> Tensor: ...
    def represented(self, tokens: Tensor, states: Tensor) -> Tensor: ...


def backbone_of(module: Any) -> Backbone:
    if not hasattr(module, "represented"):
        raise ConfigError(
            f"{type(module).__name__} names no hidden words and has no decoder, as this algorithm needs; "
            "set model.name=mixed:<encoder>, such as mixed:minilm or mixed:tiny."
        )
    found: Backbone = module
    return found


@message
@dataclass(frozen=True)
class MaskedWords:
    """Name the words that were hidden, replaced or just asked for (`corruption.masked`)."""

    alone: ClassVar[bool] = True

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        model = backbone_of(forward.module)
        width = _width(batch["attention_mask"])
        short = {n: batch[n][:, :width] for n in ("input_ids", "attention_mask")}
        return _where_asked(model.hidden(short), batch["labels"][:, :width], model.named)


@message
@dataclass(frozen=True)
class Reconstruction:
    """Write the text as it was before it was garbled (`corruption.noised`)."""

    alone: ClassVar[bool] = True

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        model = backbone_of(forward.module)
        width, length = _width(batch["attention_mask"]), _width(batch["labels"] != IGNORED)
        source = batch["input_ids"][:, :width], batch["attention_mask"][:, :width]
        states = model.decoded(*source, batch["decoder_input_ids"][:, :length])
        return _where_asked(states, batch["labels"][:, :length], model.written)


@message
@dataclass(frozen=True)
class Contrasted:
    """The task's own loss, and how far this client's reading of synthetic states is from its neighbours' (eq. 3 of ATC).

    −log(s⁺ / (s⁺ + s⁻)),  s⁺ = exp(cos(h, mean of the neighbours' h)/τ),  s⁻ = Σ exp(cos(h, h of one who is none)/τ)

    Synthetic rows are drawn apart from the task's, so adding one loss to each example keeps the mean of both.
    """

    task: Objective
    temperature: float = 1.0

    alone: ClassVar[bool] = True

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        losses, worth = self.task.losses(forward, batch)
        mine = backbone_of(forward.module).represented(batch["tokens"].long(), batch["states"].float())
        return losses + batch["paired"] * contrast(mine, batch["near"], batch["far"], self.temperature), worth


def contrast(mine: Tensor, near: Tensor, far: Tensor, temperature: float = 1.0) -> Tensor:
    """One loss a row; 0 without others. `near`: the neighbours' mean [rows, width]; `far`: the others [rows, others, width]."""
    toward = F.cosine_similarity(mine, near.float(), dim=-1) / temperature
    away = F.cosine_similarity(mine.unsqueeze(1), far.float(), dim=-1) / temperature
    return torch.logsumexp(torch.cat([toward.unsqueeze(1), away], 1), 1) - toward


@message
@dataclass(frozen=True)
class States:
    """The encoder's last states, cut or filled with zeros to `length` tokens; half precision if `half`."""

    length: int
    half: bool = False

    alone: ClassVar[bool] = True

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        states = backbone_of(forward.module).hidden(batch) * batch["attention_mask"].unsqueeze(-1)
        states = F.pad(states, (0, 0, 0, max(0, self.length - states.shape[1])))[:, : self.length]
        return {"states": states.half() if self.half else states.float()}


@message
@dataclass(frozen=True)
class WordsOf:
    """The likeliest word at each of some given states."""

    alone: ClassVar[bool] = True

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        return {"tokens": backbone_of(forward.module).named(batch["states"].float()).argmax(-1).int()}


@message
@dataclass(frozen=True)
class Represented:
    """What a client makes of given states and words: one vector each."""

    alone: ClassVar[bool] = True

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        found = backbone_of(forward.module).represented(batch["tokens"].long(), batch["states"].float())
        return {"represented": found.float()}


def _where_asked(states: Tensor, labels: Tensor, score: Any) -> tuple[Tensor, Tensor]:
    """The mean loss over the labelled positions of each row, and how many there are."""
    asked = labels != IGNORED
    each = F.cross_entropy(score(states[asked]).float(), labels[asked], reduction="none")
    count = asked.sum(1)
    row = torch.arange(len(labels), device=labels.device).repeat_interleave(count)
    return each.new_zeros(len(labels)).index_add(0, row, each) / count.clamp(min=1), count.float()


def _width(real: Tensor) -> int:
    """How wide a batch really is: its columns are as wide as the longest text of the client."""
    return max(1, int((real != 0).sum(1).max()))
