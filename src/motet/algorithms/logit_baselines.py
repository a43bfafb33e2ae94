"""AdaFD's baselines, as run in its paper: federated distillation with other weights, poolings and losses.

| | weights | pooling | server loss | clients learn from |
| --- | --- | --- | --- | --- |
| FedAvg of logits | 1/K | mean logits | KL | server logits, KL (code: hard CE) |
| DS-FL (Itahara et al. 2021) | nₖ/n (code: 1/K) | softmax(mean logits / 0.1) | CE (code: hard) | pooled logits, ditto |
| MHAT (Hu et al. 2021) | nₖ/n | votes | CE | server logits, CE (code: hard CE) |
| FedKD (Gong et al. 2022) | nₖ/n | mean logits | KL (code: squared error) | nothing; there is one round |

Hard CE is the cross-entropy with the teacher's most likely class. MHAT's loss, Σ wᵏ CE(·, argmax zᵏ), is the
cross-entropy with each class's weighted share of the votes.

`variant=paper` follows the text of AdaFD's paper and `released_code` its authors' code. `original` follows the
authors of the method itself: DS-FL pools probabilities, and FedKD weights each class by the clients' number of
examples of it. Where the text does not specify a loss, we use the soft one.
"""

from __future__ import annotations

from typing import Literal

from motet.algorithms.adafd import SOLVER, make_distill_solver, make_secure_distillation
from motet.algorithms.distillation import Distillation, Distiller, ExchangeMode
from motet.algorithms.distillation_weights import (
    ClassCountWeights,
    EqualWeights,
    ExampleCountWeights,
    LocalWeightingRule,
    LocalWeights,
)
from motet.algorithms.logit_pooling import Pooling
from motet.core.program import Algorithm
from motet.learning.objectives.distillation_losses import KLDivergence, LogitSquaredError, TeacherCrossEntropy
from motet.learning.solver import Solver

Variant = Literal["paper", "released_code"]
OriginalVariant = Literal["paper", "released_code", "original"]
HARD, SOFT = TeacherCrossEntropy(hard=True), TeacherCrossEntropy()


def fedavg_logits(
    solver: Solver = SOLVER,
    variant: Variant = "paper",
    distill_epochs: int | None = None,
    distill_lr: float | None = None,
    exchange: ExchangeMode = "gather",
) -> Algorithm:
    """Average the clients' logits on public texts (FedAvg of logits, a baseline in AdaFD's paper)."""
    is_released = variant == "released_code"
    distiller = Distiller(
        solver=solver,
        distill_solver=make_distill_solver(solver, distill_epochs, distill_lr),
        server_loss=KLDivergence(),
        client_loss=HARD if is_released else KLDivergence(),
        restart_every_epoch=is_released,
    )
    return _build("fedavg_logits", distiller, EqualWeights(), exchange)


def dsfl(
    solver: Solver = SOLVER,
    variant: OriginalVariant = "paper",
    sharpness: float = 0.1,
    distill_epochs: int | None = None,
    distill_lr: float | None = None,
    exchange: ExchangeMode = "gather",
) -> Algorithm:
    """Average and sharpen the clients' logits: entropy-reduction aggregation (DS-FL, Itahara et al. 2021)."""
    is_released = variant == "released_code"
    loss = HARD if is_released else SOFT
    distiller = Distiller(
        solver=solver,
        distill_solver=make_distill_solver(solver, distill_epochs, distill_lr),
        pooling=Pooling("probabilities" if variant == "original" else "logits", sharpness),
        server_loss=loss,
        client_loss=loss,
        teach_pooled=True,
        restart_every_epoch=is_released,
    )
    return _build("dsfl", distiller, ExampleCountWeights() if variant == "paper" else EqualWeights(), exchange)


def mhat(
    solver: Solver = SOLVER,
    variant: Variant = "paper",
    distill_epochs: int | None = None,
    distill_lr: float | None = None,
    exchange: ExchangeMode = "gather",
) -> Algorithm:
    """The server's model learns from the clients' votes for classes (MHAT, Hu et al. 2021)."""
    is_released = variant == "released_code"
    distiller = Distiller(
        solver=solver,
        distill_solver=make_distill_solver(solver, distill_epochs, distill_lr),
        pooling=Pooling("votes"),
        server_loss=SOFT,
        client_loss=HARD if is_released else SOFT,
        restart_every_epoch=is_released,
    )
    return _build("mhat", distiller, ExampleCountWeights(), exchange)


def fedkd(
    solver: Solver = SOLVER,
    variant: OriginalVariant = "paper",
    distill_epochs: int | None = None,
    distill_lr: float | None = None,
    exchange: ExchangeMode = "gather",
) -> Algorithm:
    """The server's model learns from one exchange of logits (FedKD, Gong et al. 2022)."""
    is_released = variant == "released_code"
    distiller = Distiller(
        solver=solver,
        distill_solver=make_distill_solver(solver, distill_epochs, distill_lr),
        server_loss=LogitSquaredError() if is_released else KLDivergence(),
        client_loss=None,
        restart_every_epoch=is_released,
        max_rounds=1,
    )
    if variant == "original" and exchange == "sum":
        return make_secure_distillation("fedkd", distiller, None, "class_counts", None)
    if variant == "original":
        return Distillation(distiller, ClassCountWeights(), name="fedkd")
    return _build("fedkd", distiller, ExampleCountWeights(), exchange)


def _build(name: str, distiller: Distiller, rule: LocalWeightingRule, exchange: ExchangeMode) -> Algorithm:
    if exchange == "sum":
        return make_secure_distillation(name, distiller, rule, "", None)
    return Distillation(distiller, LocalWeights(rule), name=name)
