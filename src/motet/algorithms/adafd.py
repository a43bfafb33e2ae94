"""AdaFD: adaptive federated distillation for multi-domain, non-IID text. Opinions are weighed by how well clients learnt.

    wᵏ ∝ 1/(lᵏ + ε)   (RNWC)      wᵏ ∝ exp(−β(lᵏ + ε))   (ENWC)      wᵏ from a language model   (LLMWC)
    server: ‖z̃ − ẑ‖², ẑ = Σ wᵏ zᵏ          clients: KL(softmax z̃ ‖ softmax zᵏ)

lᵏ is the least of this round's epoch losses (means over batches, in training); opinions are of the model after the last epoch.
The squared error is the mean over classes, as in the authors' code; `squared=sum` is the equation's. Their code makes a new
optimiser and schedule for every epoch with the horizon of all of them, so that the rate never falls below 2/3 of itself:
`released_code=true`. Otherwise one optimiser and one schedule go over a local training.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from motet.algorithms.distillation import Distillation, Exchanged, Teaching
from motet.algorithms.distillation_weights import (
    BySize,
    Equal,
    Exponential,
    Importance,
    LocalImportance,
    Own,
    Reciprocal,
)
from motet.algorithms.llm_weighting import Chat, Oracle
from motet.algorithms.secure_distillation import SummedDistillation
from motet.core.errors import ConfigError
from motet.core.program import Algorithm
from motet.learning.objectives.distillation_losses import KLDivergence, LogitSquaredError
from motet.learning.solver import Solver

SOLVER = Solver(epochs=3, lr=2e-5, warmup=0.0)
Weighting = Literal["enwc", "rnwc", "llmwc", "examples", "equal"]


def adafd(
    solver: Solver = SOLVER,
    weighting: Weighting = "enwc",
    beta: float = 5.0,
    epsilon: float = 1e-6,
    temperature: float = 1.0,
    squared: Literal["mean", "sum"] = "mean",
    distil_epochs: int | None = None,
    distil_lr: float | None = None,
    exchange: Exchanged = "gather",
    top_classes: int | None = None,
    llm: Chat = Chat(),
    released_code: bool = False,
) -> Algorithm:
    """Unlike models teach one another by opinions on public texts, weighed by how well each client learnt (AdaFD)."""
    teaching = Teaching(
        solver,
        distilling(solver, distil_epochs, distil_lr),
        server_loss=LogitSquaredError(squared == "sum"),
        local_loss=KLDivergence(temperature),
        fresh_epochs=released_code,
    )
    rules: dict[str, LocalImportance] = {
        "enwc": Exponential(beta, epsilon),
        "rnwc": Reciprocal(epsilon),
        "examples": BySize(),
        "equal": Equal(),
    }
    if exchange == "sum":
        return summed("adafd", teaching, rules.get(weighting), weighting, top_classes)
    importance: Importance = Oracle(llm, Own(rules["enwc"])) if weighting == "llmwc" else Own(rules[weighting])
    return Distillation(teaching, importance, top_classes)


def distilling(solver: Solver, epochs: int | None, lr: float | None) -> Solver:
    """Distillation goes as training does, where nothing else is said."""
    return replace(solver, epochs=solver.epochs if epochs is None else epochs, lr=solver.lr if lr is None else lr)


def summed(
    name: str, teaching: Teaching, rule: LocalImportance | None, weighting: str, top_classes: int | None
) -> SummedDistillation:
    if rule is None:
        raise ConfigError(
            f"{name}: weighting={weighting} compares what all clients tell, so that none can weigh its opinions itself; "
            "use exchange=gather, or weighting=enwc or rnwc."
        )
    if top_classes is not None:
        raise ConfigError(f"{name}: opinions cut to the best {top_classes} classes do not add up; use exchange=gather.")
    return SummedDistillation(teaching, rule, name)
