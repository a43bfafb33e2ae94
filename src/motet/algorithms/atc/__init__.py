"""ATC (Dong et al. 2022, "Collaborating Heterogeneous NLP Tasks via Federated Learning"): Assign-Then-Contrast.

Clients with different tasks (classification, question answering, generation) learn from each other without revealing
their tasks. There are two phases over one backbone (`mixed:<encoder>`). In `assign.py`, clients train on
self-supervised objectives and are clustered. In `contrast.py`, they train on their own tasks with neighbors as
positives; `synthetic_states.py` creates the data on which they are compared.

The ablations in the paper's tables are options: `assign: 0` skips the first phase, `second_stage: fedavg` replaces
the second one and `second_stage: neighbors` drops only its contrastive loss, `objectives: [mlm]` or `[dr]` uses a
single objective, and `clusters: 1` puts all clients in one cluster.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from motet.algorithms.atc.assign import TRAINED_LAYERS, Assign, ObjectiveName
from motet.algorithms.atc.backbone_layers import ENCODER
from motet.algorithms.atc.contrast import Contrast, Pairing
from motet.algorithms.atc.synthetic_states import StateWeighting, SyntheticStates
from motet.algorithms.fedavg import FedAvg
from motet.algorithms.phases import Phase, Phases
from motet.core.errors import ConfigError
from motet.core.program import Algorithm
from motet.learning.solver import Solver

SOLVER = Solver(steps=200, batch=32, lr=5e-4, weight_decay=0.01, warmup=0.1, keep_state=True)


def atc(
    solver: Solver = SOLVER,
    assign: float = 2 / 3,
    assign_steps: int | None = 50,
    assign_batch: int | None = 64,
    objectives: tuple[ObjectiveName, ...] = ("mlm", "dr"),
    clusters: int = 5,
    second_stage: Literal["contrast", "neighbors", "fedavg"] = "contrast",
    neighbors: int = 8,
    temperature: float = 1.0,
    instances: int = 512,
    tokens: int = 128,
    half: bool = True,
    weighting: StateWeighting = "server",
    pairing: Pairing = "random",
) -> Phases:
    """Clients with different tasks learn from each other: Assign-Then-Contrast (Dong et al. 2022)."""
    if not objectives or any(name not in TRAINED_LAYERS for name in objectives):
        raise ConfigError(
            f"algorithm.objectives is {list(objectives)}; expected a list of one or both of {', '.join(TRAINED_LAYERS)}."
        )
    if clusters < 1:
        raise ConfigError(
            f"algorithm.clusters is {clusters}; expected at least 1, which puts all clients in one cluster."
        )
    assign_solver = replace(solver, steps=assign_steps or solver.steps, batch=assign_batch or solver.batch)
    first = Phase(Assign(assign_solver, objectives, clusters), assign)
    algorithm: Algorithm = Contrast(
        solver=solver,
        neighbors=neighbors,
        temperature=temperature,
        pairing=pairing,
        use_contrast=second_stage == "contrast",
        synthetic=SyntheticStates(instances, tokens, half, weighting),
    )
    if second_stage == "fedavg":
        algorithm = FedAvg(solver, shared=ENCODER)
    second = Phase(algorithm, 1 - assign)
    return Phases((first, second) if assign else (second,), name="atc")
