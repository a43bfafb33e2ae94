"""ATC (Dong et al. 2022, Collaborating Heterogeneous NLP Tasks via Federated Learning): assign, then contrast.

Clients that classify, answer and write learn from each other without saying what their task is. Two phases over one backbone
(`mixed:<encoder>`): `assign.py`, self-supervised lessons with clusters, and `contrast.py`, the clients' own tasks with
neighbours; `between.py` makes what the second compares them on. The ablations of the paper's tables are switches: `assign: 0`
leaves the first stage out, `second: fedavg` replaces the other (`neighbours` leaves out only its loss), `lessons: [mlm]` or
`[dr]` gives one kind of lesson, `clusters: 1` has all clients learn as one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from motet.algorithms.atc.assign import TRAINS, Assign, Lesson
from motet.algorithms.atc.backbone_state import ENCODER
from motet.algorithms.atc.contrast import Contrast
from motet.algorithms.atc.synthetic_states import Between, Weighing
from motet.algorithms.fedavg import FedAvg
from motet.algorithms.phases import Phase, Phases
from motet.core.errors import ConfigError
from motet.core.program import Algorithm
from motet.learning.solver import Solver

SOLVER = Solver(steps=200, batch=32, lr=5e-4, weight_decay=0.01, warmup=0.1)


def atc(
    solver: Solver = SOLVER,
    assign: float = 2 / 3,
    assign_steps: int | None = 50,
    assign_batch: int | None = 64,
    lessons: tuple[Lesson, ...] = ("mlm", "dr"),
    clusters: int = 5,
    second: Literal["contrast", "neighbours", "fedavg"] = "contrast",
    neighbours: int = 8,
    temperature: float = 1.0,
    instances: int = 512,
    tokens: int = 128,
    half: bool = True,
    weighting: Weighing = "server",
    pairing: Literal["drawn", "by_index"] = "drawn",
) -> Phases:
    """Clients with different tasks learn from each other: assign lessons, then contrast (Dong et al. 2022)."""
    if not lessons or any(lesson not in TRAINS for lesson in lessons):
        raise ConfigError(f"atc.lessons is {list(lessons)}; it is a list of one or both of {', '.join(TRAINS)}.")
    if clusters < 1:
        raise ConfigError(f"atc.clusters is {clusters}; it is at least 1, and 1 means that all learn together.")
    first = replace(solver, steps=assign_steps or solver.steps, batch=assign_batch or solver.batch)
    between = Between(instances, tokens, half, weighting)
    stage: Algorithm = Contrast(solver, neighbours, temperature, pairing, second == "contrast", between)
    if second == "fedavg":
        stage = FedAvg(solver, shared=ENCODER)
    phases = (Phase(Assign(first, lessons, clusters), assign), Phase(stage, 1 - assign))
    return Phases(phases if assign else phases[1:], name="atc")
