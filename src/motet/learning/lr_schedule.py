"""Learning-rate schedules: linear warmup, then linear or cosine decay, or a constant rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from motet.core.messages import message

Schedule = Literal["linear", "cosine", "constant"]


@message
@dataclass(frozen=True)
class LRHorizon:
    """A learning-rate schedule that spans several jobs: steps done before this job, and the total."""

    done_steps: int
    total_steps: int


def learning_rate_factor(schedule: Schedule, warmup: float, step: int, steps: int) -> float:
    """Return the factor of the highest rate in a step: it rises in the first ceil(warmup * steps) steps, then falls.

    The scheduler of transformers gives the first step rate 0, which would waste a step in every round. Here the first
    step has 1/ceil(...) of the rate and the last step a small one, so that every step of a short training counts.
    """
    if schedule == "constant":
        return 1.0
    warmup_steps = max(1, math.ceil(warmup * steps))
    remaining = max(0, steps - step) / max(1, steps - warmup_steps + 1)
    if schedule == "cosine" and remaining < 1:
        remaining = (1 - math.cos(math.pi * remaining)) / 2
    return min((step + 1) / warmup_steps, remaining)
