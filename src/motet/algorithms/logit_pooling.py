"""Opinions: what a model scores the classes of texts, how many are put together, and how they travel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.errors import ConfigError, RunError
from motet.core.messages import message
from motet.core.params import Params

Kind = Literal["logits", "probabilities", "votes"]


@dataclass(frozen=True)
class Pool:
    """A weighted mean of the clients' logits, probabilities, or votes (1 for the likeliest class), then sharpened by T.

    What is done to one client's opinion comes before the sum, what is done to all after it: so a sum is all that is needed.
    """

    kind: Kind = "logits"
    sharpness: float | None = None  # T of entropy-reduction aggregation (DS-FL): softmax(mean / T)

    def __post_init__(self) -> None:
        if self.sharpness is not None and not self.sharpness > 0:
            raise ConfigError(
                f"algorithm.sharpness is {self.sharpness}; it is a number above 0, small for a sharp pool."
            )

    def before(self, logits: Tensor) -> Tensor:
        match self.kind:
            case "logits":
                return logits
            case "probabilities":
                return logits.softmax(-1)
            case "votes":
                return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)

    def after(self, mean: Tensor) -> Tensor:
        """As logits again, which softmax makes into the pooled distribution."""
        if self.sharpness is not None:
            return mean / self.sharpness
        return mean if self.kind == "logits" else mean.clamp(min=1e-9).log()


SLIGHT = 1e-4  # a word of which less than this share of the weights says anything is one of which nobody does


def pooled(pool: Pool, opinions: list[Tensor], shares: Tensor) -> Tensor:
    """ẑ = Σ wᵏ zᵏ (AdaFD, eq. 8). `shares` are [clients] or [clients, classes]."""
    return pool.after(_summed(pool, opinions, list(shares)))


def pooled_words(pool: Pool, opinions: list[Params], shares: Tensor) -> Params:
    """The same word by word, over those who see the word: ẑ = Σ wᵏ sᵏ zᵏ / Σ wᵏ sᵏ."""
    seen = [opinion["seen"].float() for opinion in opinions]
    each = [share * column.unsqueeze(1) for share, column in zip(shares.float(), seen, strict=True)]
    total = _summed(pool, [opinion["logits"] for opinion in opinions], each)
    return of_the_seeing(pool, total, torch.stack([e.expand_as(total) for e in each]).sum(0))


def of_the_seeing(pool: Pool, total: Tensor, weight: Tensor) -> Params:
    """From Σ wᵏ sᵏ zᵏ and Σ wᵏ sᵏ, which is [words] or [words, classes]; the weights wᵏ sum to one."""
    weight = weight if weight.dim() == 2 else weight.unsqueeze(1)
    known = (weight > SLIGHT).all(1)
    return Params.from_tensors({"logits": pool.after(total / weight.clamp(min=SLIGHT)), "seen": known.float()})


def _summed(pool: Pool, opinions: list[Tensor], shares: list[Tensor]) -> Tensor:
    total = torch.zeros_like(opinions[0])
    for opinion, share in zip(opinions, shares, strict=True):
        total += share.to(total.dtype) * pool.before(opinion)
    return total


@message
@dataclass(frozen=True, eq=False)
class TopClasses:
    """The best k scores of each text and the mean of the others, which every other class is then given."""

    values: Params  # logits [texts, k + 1]; of words also which of them were seen
    classes: Tensor  # [texts, k]
    count: int


def shortened(opinions: Params, top: int | None) -> Params | TopClasses:
    """Opinions as they travel: all scores, or the best `top` of each text."""
    logits = opinions["logits"]
    count = logits.shape[1]
    if top is None or top + 1 >= count:  # with the others' mean it would be no shorter
        return opinions
    best = logits.topk(top, -1)
    rest = (logits.sum(-1, keepdim=True) - best.values.sum(-1, keepdim=True)) / (count - top)
    small = torch.uint8 if count <= 256 else torch.int32
    values = {**opinions.tensors(), "logits": torch.cat([best.values, rest], -1)}
    return TopClasses(Params.from_tensors(values), best.indices.to(small), count)


def whole(opinion: Params | TopClasses) -> Params:
    """The scores of all classes again."""
    if isinstance(opinion, Params):
        return opinion
    values, classes = opinion.values["logits"], opinion.classes.long()
    if classes.numel() and int(classes.max()) >= opinion.count:
        raise RunError(f"an opinion names class {int(classes.max())} of {opinion.count}; expected numbers below that.")
    logits = values[:, -1:].repeat(1, opinion.count).scatter(-1, classes, values[:, :-1])
    return Params.from_tensors({**opinion.values.tensors(), "logits": logits})


def check_top(top: int | None) -> None:
    if top is not None and top < 1:
        raise ConfigError(
            f"algorithm.top_classes is {top}; it is a number of classes of at least 1, or left out for all."
        )


def entropy(logits: Tensor) -> float:
    """Of the opinions on average, in nats; the 1e-10 is the authors'."""
    chances = logits.double().softmax(-1)
    return float(-(chances * (chances + 1e-10).log()).sum(-1).mean()) if len(logits) else 0.0
