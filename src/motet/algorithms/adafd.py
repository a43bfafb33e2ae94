"""AdaFD: adaptive federated distillation for multi-domain, non-IID text. Clients are weighted by their training loss.

    wᵏ ∝ 1/(lᵏ + ε)   (RNWC)      wᵏ ∝ exp(−β(lᵏ + ε))   (ENWC)      wᵏ from a language model   (LLMWC)
    server: ‖z̃ − ẑ‖², ẑ = Σ wᵏ zᵏ          clients: KL(softmax z̃ ‖ softmax zᵏ)

lᵏ is the smallest epoch loss of this round (mean over training batches). Clients send the logits of the model after
the last epoch.

Where we differ: the squared error is the mean over classes, as in the authors' code; `squared=sum` follows the
equation. One optimizer and one learning-rate schedule cover the local training. The authors' code creates new ones in
every epoch, with a horizon of all epochs, so the learning rate never falls below 2/3 of its initial value;
`released_code=true` does the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from motet.algorithms.distillation import Distillation, Distiller, ExchangeMode
from motet.algorithms.distillation_weights import (
    EqualWeights,
    ExampleCountWeights,
    ExponentialWeights,
    LocalWeightingRule,
    LocalWeights,
    ReciprocalWeights,
    WeightingRule,
)
from motet.algorithms.llm_weighting import LLMConfig, LLMWeights
from motet.algorithms.secure_distillation import SecureDistillation
from motet.core.errors import ConfigError
from motet.core.program import Algorithm
from motet.learning.objectives.distillation_losses import KLDivergence, LogitSquaredError
from motet.learning.solver import Solver

SOLVER = Solver(epochs=3, lr=2e-5, warmup=0.0)
LogitWeighting = Literal["enwc", "rnwc", "llmwc", "examples", "equal"]


def adafd(
    solver: Solver = SOLVER,
    weighting: LogitWeighting = "enwc",
    beta: float = 5.0,
    epsilon: float = 1e-6,
    temperature: float = 1.0,
    squared: Literal["mean", "sum"] = "mean",
    distill_epochs: int | None = None,
    distill_lr: float | None = None,
    exchange: ExchangeMode = "gather",
    top_classes: int | None = None,
    llm: LLMConfig = LLMConfig(),
    released_code: bool = False,
) -> Algorithm:
    """Different models learn from each other's logits on public texts, weighted by training loss (AdaFD)."""
    distiller = Distiller(
        solver=solver,
        distill_solver=make_distill_solver(solver, distill_epochs, distill_lr),
        server_loss=LogitSquaredError(squared == "sum"),
        client_loss=KLDivergence(temperature),
        restart_every_epoch=released_code,
    )
    rules: dict[str, LocalWeightingRule] = {
        "enwc": ExponentialWeights(beta, epsilon),
        "rnwc": ReciprocalWeights(epsilon),
        "examples": ExampleCountWeights(),
        "equal": EqualWeights(),
    }
    if exchange == "sum":
        return make_secure_distillation("adafd", distiller, rules.get(weighting), weighting, top_classes)
    rule: WeightingRule = (
        LLMWeights(llm, fallback=LocalWeights(rules["enwc"]))
        if weighting == "llmwc"
        else LocalWeights(rules[weighting])
    )
    return Distillation(distiller, rule, top_classes)


def make_distill_solver(solver: Solver, epochs: int | None, lr: float | None) -> Solver:
    """Return the solver for distillation: the one for training, with the given epochs and learning rate."""
    if epochs is not None:
        solver = replace(solver, epochs=epochs, steps=None)
    return solver if lr is None else replace(solver, lr=lr)


def make_secure_distillation(
    name: str, distiller: Distiller, rule: LocalWeightingRule | None, weighting: str, top_classes: int | None
) -> SecureDistillation:
    """Build the algorithm for exchange=sum, or raise an error if its weights or logits cannot be summed."""
    if rule is None:
        raise ConfigError(
            f"{name}: weighting={weighting} compares the statistics of all clients, so a client cannot weight its own "
            "logits; use exchange=gather, or weighting=enwc or rnwc."
        )
    if top_classes is not None:
        raise ConfigError(f"{name}: logits of the top {top_classes} classes cannot be summed; use exchange=gather.")
    return SecureDistillation(distiller, rule, name)
