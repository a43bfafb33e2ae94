"""What a reply must be before it may touch a model: of the kind that was asked for, finite, and of a shape that fits."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from motet.core.errors import RunError
from motet.core.params import Params
from motet.core.weighted import Weighted
from motet.wire import encode_header

NOT_FINITE = "the reply holds numbers that are not finite; a smaller solver.lr or solver.clip may help."


def check_sum_term(value: Any, like: Params | None) -> Weighted:
    """One term of a sum. `like` is what has been summed so far."""
    if not isinstance(value, Weighted):
        raise RunError(f"the reply is a {type(value).__name__}; a sum needs parameters with a weight.")
    if not (math.isfinite(value.weight) and value.weight >= 0):
        raise RunError(f"the reply has weight {value.weight}; expected a finite number of at least 0.")
    if like is not None:
        like.check_same_layout(value.value)
        if like.flat.dtype != value.value.flat.dtype:
            raise RunError(f"the reply's numbers are {value.value.flat.dtype}, those of others {like.flat.dtype}.")
    if not is_finite(value.value.flat):
        raise RunError(NOT_FINITE)
    return value


def check_finite(value: Any) -> None:
    """No tensor in it, however deep, holds NaN or infinity."""
    if any(not (isinstance(bulk, bytes) or is_finite(bulk)) for bulk in encode_header(value)[1]):
        raise RunError(NOT_FINITE)


def is_finite(tensor: Tensor) -> bool:
    """One pass that allocates nothing: a sum is finite only if all its terms are. It may overflow; then each is looked at."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    return math.isfinite(float(tensor.sum())) or bool(torch.isfinite(tensor).all())
