"""Every algorithm, with options that let it show its behavior on a model of two layers in a few rounds."""

from __future__ import annotations

from dataclasses import replace
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
        "neighbors": 2,
        "instances": 6,
        "tokens": 8,
    },
    "fedsplit": {"c": 1, "embeddings": "global"},
    "percfl": {"eps1": 1e9, "eps2": 0.0, "after": 1},
    "feddyn": {"alpha": 0.1},
    "fedrep": {"head_epochs": 2, "weighting": "examples"},  # weight 1 of at most 1024 costs a secure sum ten bits
    "pfedme": {"lam": 1.0, "eta": 0.5, "inner_steps": 3},
    **{name: {"ranks": [2, 4]} for name in ("flora", "flexlora", "hetlora")},
    "fedavg_st": {"groups": {"even": ["client-0", "client-2"], "odd": ["client-1", "client-3"]}},
}
DISTILLATION = ("adafd", "fedavg_logits", "dsfl", "mhat", "fedkd")
NEEDS_ADAPTERS = {"ffa_lora", "rolora", "fedsa_lora", "fedex_lora", "flora", "flexlora", "hetlora"}
NEEDS_BACKBONE = {"atc"}  # algorithms that need an encoder-decoder with a head for masked language modeling


NEEDS_SGD = {"scaffold", "fednova", "qfedavg", "per_fedavg"}


def make_algorithm(name: str, **options: Any) -> Algorithm:
    options = {"solver": SOLVER, **OPTIONS.get(name, {}), **options}
    if name in NEEDS_SGD and options["solver"].optimizer != "sgd":
        options["solver"] = replace(options["solver"], optimizer="sgd", lr=10 * options["solver"].learning_rate)
    return ALGORITHMS[name](**options)
