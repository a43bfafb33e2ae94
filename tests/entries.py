"""Every algorithm of the table with what it needs to show itself on a model of two layers, in a few rounds."""

from __future__ import annotations

from typing import Any

from motet.algorithms import ALGORITHMS
from motet.core.program import Algorithm
from motet.learning.solver import Solver

SOLVER = Solver(optimizer="adamw", lr=0.01, batch=8)
OPTIONS: dict[str, dict[str, Any]] = {
    "atc": {
        "assign": 0.5,
        "assign_steps": 2,
        "assign_batch": 8,
        "clusters": 2,
        "neighbours": 2,
        "instances": 6,
        "tokens": 8,
    },
    "fedsplit": {"c": 1, "embeddings": "global"},
    "percfl": {"eps1": 1e9, "eps2": 0.0, "after": 1},
    "fedavg_st": {"groups": {"even": ["client-0", "client-2"], "odd": ["client-1", "client-3"]}},
}
DISTILLING = ("adafd", "fedavg_logits", "dsfl", "mhat", "fedkd")
ON_A_BACKBONE = {"atc"}  # which need a model that is more than its task


def made(name: str, **options: Any) -> Algorithm:
    return ALGORITHMS[name](**{"solver": SOLVER, **OPTIONS.get(name, {}), **options})
