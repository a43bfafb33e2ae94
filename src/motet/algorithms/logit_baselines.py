"""What AdaFD is compared with, as its paper runs them: federated distillation with other weights, pools and losses.

| | weights | pool | server's loss | clients learn |
| --- | --- | --- | --- | --- |
| FedAvg of logits | 1/K | mean logits | KL | from the server's logits, by KL (code: its likeliest class) |
| DS-FL (Itahara et al. 2021) | nₖ/n (code: 1/K) | softmax(mean logits / 0.1) | CE (code: hard) | from the pool, likewise |
| MHAT (Hu et al. 2021) | nₖ/n | votes | CE | from the server's logits, by CE (code: hard) |
| FedKD (Gong et al. 2022) | nₖ/n | mean logits | KL (code: squared error) | nothing; there is one round |

MHAT's loss, Σ wᵏ CE(·, argmax zᵏ), is the cross-entropy with the classes' weighted shares of the votes.

`variant=paper` follows AdaFD's text, `released_code` its authors' code, `original` the method's own authors: DS-FL pools
probabilities, FedKD weighs each class by the clients' examples of it. Where the text leaves a loss open, the soft one is taken.
"""

from __future__ import annotations

from typing import Literal

from motet.algorithms.adafd import SOLVER, distilling, summed
from motet.algorithms.distillation import Distillation, Exchanged, Teaching
from motet.algorithms.distillation_weights import ByClass, BySize, Equal, Importance, LocalImportance, Own
from motet.algorithms.logit_pooling import Pool
from motet.core.program import Algorithm
from motet.learning.objectives.distillation_losses import KLDivergence, LogitSquaredError, TeacherCrossEntropy
from motet.learning.solver import Solver

Variant = Literal["paper", "released_code"]
OriginalToo = Literal["paper", "released_code", "original"]
HARD, SOFT = TeacherCrossEntropy(hard=True), TeacherCrossEntropy()


def fedavg_logits(
    solver: Solver = SOLVER,
    variant: Variant = "paper",
    distil_epochs: int | None = None,
    distil_lr: float | None = None,
    exchange: Exchanged = "gather",
) -> Algorithm:
    """Opinions on public texts, averaged (FedAvg of logits, as AdaFD compares itself with it)."""
    released = variant == "released_code"
    distil = distilling(solver, distil_epochs, distil_lr)
    teaching = Teaching(
        solver, distil, Pool(), KLDivergence(), HARD if released else KLDivergence(), fresh_epochs=released
    )
    return _made("fedavg_logits", teaching, Equal(), exchange)


def dsfl(
    solver: Solver = SOLVER,
    variant: OriginalToo = "paper",
    sharpness: float = 0.1,
    distil_epochs: int | None = None,
    distil_lr: float | None = None,
    exchange: Exchanged = "gather",
) -> Algorithm:
    """Opinions averaged and sharpened, entropy-reduction aggregation (DS-FL, Itahara et al. 2021)."""
    released = variant == "released_code"
    pool = Pool("probabilities" if variant == "original" else "logits", sharpness)
    loss = HARD if released else SOFT
    distil = distilling(solver, distil_epochs, distil_lr)
    teaching = Teaching(solver, distil, pool, loss, loss, from_pool=True, fresh_epochs=released)
    return _made("dsfl", teaching, BySize() if variant == "paper" else Equal(), exchange)


def mhat(
    solver: Solver = SOLVER,
    variant: Variant = "paper",
    distil_epochs: int | None = None,
    distil_lr: float | None = None,
    exchange: Exchanged = "gather",
) -> Algorithm:
    """The server's model learns from the clients' votes for classes (MHAT, Hu et al. 2021)."""
    released = variant == "released_code"
    distil = distilling(solver, distil_epochs, distil_lr)
    teaching = Teaching(solver, distil, Pool("votes"), SOFT, HARD if released else SOFT, fresh_epochs=released)
    return _made("mhat", teaching, BySize(), exchange)


def fedkd(
    solver: Solver = SOLVER,
    variant: OriginalToo = "paper",
    distil_epochs: int | None = None,
    distil_lr: float | None = None,
    exchange: Exchanged = "gather",
) -> Algorithm:
    """One exchange of opinions, from which the server's model learns (FedKD, Gong et al. 2022)."""
    released = variant == "released_code"
    loss = LogitSquaredError() if released else KLDivergence()
    distil = distilling(solver, distil_epochs, distil_lr)
    teaching = Teaching(solver, distil, Pool(), loss, None, fresh_epochs=released, shots=1)
    if variant == "original":
        return (
            summed("fedkd", teaching, None, "classes", None)
            if exchange == "sum"
            else _gathered("fedkd", teaching, ByClass())
        )
    return _made("fedkd", teaching, BySize(), exchange)


def _made(name: str, teaching: Teaching, rule: LocalImportance, exchange: Exchanged) -> Algorithm:
    return summed(name, teaching, rule, "", None) if exchange == "sum" else _gathered(name, teaching, Own(rule))


def _gathered(name: str, teaching: Teaching, importance: Importance) -> Distillation:
    return Distillation(teaching, importance, name=name)
