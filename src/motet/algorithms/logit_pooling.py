"""Pooling of the clients' logits, and their compact form for sending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from motet.core.errors import ConfigError, RunError
from motet.core.messages import message
from motet.core.params import Params

PoolingKind = Literal["logits", "probabilities", "votes"]


@dataclass(frozen=True)
class Pooling:
    """A weighted mean of the clients' logits, probabilities or votes (one-hot predictions), optionally sharpened.

    `transform` is applied to each client's logits before they are summed, and `finalize` to their mean. So the server
    needs only the sum.
    """

    kind: PoolingKind = "logits"
    sharpness: float | None = None  # T in DS-FL's entropy-reduction aggregation: softmax(mean / T)

    def __post_init__(self) -> None:
        if self.sharpness is not None and not self.sharpness > 0:
            raise ConfigError(
                f"algorithm.sharpness is {self.sharpness}; expected a number above 0. Smaller values are sharper."
            )

    def transform(self, logits: Tensor) -> Tensor:
        match self.kind:
            case "logits":
                return logits
            case "probabilities":
                return logits.softmax(-1)
            case "votes":
                return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)

    def finalize(self, mean: Tensor) -> Tensor:
        """Return logits. Their softmax is the pooled distribution."""
        if self.sharpness is not None:
            return mean / self.sharpness
        return mean if self.kind == "logits" else mean.clamp(min=1e-9).log()


# A word counts as not seen if the clients that see it have less than this share of the weight.
MIN_SEEN_WEIGHT = 1e-4


def pool_logits(pooling: Pooling, logits: list[Tensor], weights: Tensor) -> Tensor:
    """ẑ = Σ wᵏ zᵏ (AdaFD, eq. 8). `weights` has shape [clients] or [clients, classes] and sums to one over clients."""
    return pooling.finalize(_weighted_sum(pooling, logits, list(weights)))


def pool_word_logits(pooling: Pooling, logits: list[Params], weights: Tensor) -> Params:
    """Pool each word over the clients that see it: ẑ = Σ wᵏ sᵏ zᵏ / Σ wᵏ sᵏ, with sᵏ = 1 if client k sees the word."""
    seen = [each["seen"].float() for each in logits]
    word_weights = [weight * column.unsqueeze(1) for weight, column in zip(weights.float(), seen, strict=True)]
    total = _weighted_sum(pooling, [each["logits"] for each in logits], word_weights)
    return divide_by_seen_weight(pooling, total, torch.stack([w.expand_as(total) for w in word_weights]).sum(0))


def divide_by_seen_weight(pooling: Pooling, total: Tensor, weight: Tensor) -> Params:
    """Pool from the sums Σ wᵏ sᵏ zᵏ and Σ wᵏ sᵏ, where Σ wᵏ = 1. The weight has shape [words] or [words, classes]."""
    weight = weight if weight.dim() == 2 else weight.unsqueeze(1)
    is_seen = (weight > MIN_SEEN_WEIGHT).all(1)
    mean = total / weight.clamp(min=MIN_SEEN_WEIGHT)
    return Params.from_tensors({"logits": pooling.finalize(mean), "seen": is_seen.float()})


def _weighted_sum(pooling: Pooling, logits: list[Tensor], weights: list[Tensor]) -> Tensor:
    total = torch.zeros_like(logits[0])
    for each, weight in zip(logits, weights, strict=True):
        total += weight.to(total.dtype) * pooling.transform(each)
    return total


@message
@dataclass(frozen=True, eq=False)
class TopLogits:
    """The k largest logits of each row, and the mean of the other logits, which stands in for each of them."""

    values: Params  # logits [rows, k + 1], the mean last; for words also `seen`
    classes: Tensor  # [rows, k]
    num_classes: int


def truncate_logits(logits: Params, top_classes: int | None) -> Params | TopLogits:
    """Keep the largest `top_classes` logits of each row, or all of them if `top_classes` is None."""
    scores = logits["logits"]
    num_classes = scores.shape[1]
    if top_classes is None or top_classes + 1 >= num_classes:  # together with the mean it would not be shorter
        return logits
    top = scores.topk(top_classes, -1)
    rest = (scores.sum(-1, keepdim=True) - top.values.sum(-1, keepdim=True)) / (num_classes - top_classes)
    index_dtype = torch.uint8 if num_classes <= 256 else torch.int32
    values = {**logits.tensors(), "logits": torch.cat([top.values, rest], -1)}
    return TopLogits(Params.from_tensors(values), top.indices.to(index_dtype), num_classes)


def restore_logits(source: str, logits: Params | TopLogits, num_classes: int) -> Params:
    """Return a client's logits for all classes, or raise an error if they are for other classes."""
    if isinstance(logits, Params):
        return logits
    tensors, classes = logits.values.tensors(), logits.classes.long()
    values = tensors.get("logits", torch.zeros(0))
    is_paired = values.dim() == 2 and classes.shape == values[:, 1:].shape
    if logits.num_classes != num_classes or not is_paired or not ((classes >= 0) & (classes < num_classes)).all():
        raise RunError(
            f"{source} sent {list(values.shape)} logits with {list(classes.shape)} classes of {logits.num_classes}; expected "
            f"k + 1 logits with k classes in each row, which are numbers from 0 to {num_classes - 1}."
        )
    scores = values[:, -1:].repeat(1, num_classes).scatter(-1, classes, values[:, :-1])
    return Params.from_tensors({**tensors, "logits": scores})


def check_top_classes(top_classes: int | None) -> None:
    if top_classes is not None and top_classes < 1:
        raise ConfigError(f"algorithm.top_classes is {top_classes}; expected at least 1, or null for all classes.")


def mean_entropy(logits: Tensor) -> float:
    """Return the mean entropy in nats. The constant 1e-10 is the one in the authors' code."""
    probabilities = logits.double().softmax(-1)
    return float(-(probabilities * (probabilities + 1e-10).log()).sum(-1).mean()) if len(logits) else 0.0
