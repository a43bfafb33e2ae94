"""One file a paper. An algorithm is a row of this table."""

from __future__ import annotations

from collections.abc import Callable

from motet.algorithms.adafd import adafd
from motet.algorithms.centralised import centralised
from motet.algorithms.fedavg import fedavg
from motet.algorithms.fedopt import fedadagrad, fedadam, fedopt, fedyogi
from motet.algorithms.fedprox import fedprox
from motet.algorithms.isolated import isolated
from motet.algorithms.logit_baselines import dsfl, fedavg_logits, fedkd, mhat
from motet.core.program import Algorithm

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "centralised": centralised,
    "isolated": isolated,
    "fedavg": fedavg,
    "fedprox": fedprox,
    "fedopt": fedopt,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "fedadagrad": fedadagrad,
    "adafd": adafd,
    "fedavg_logits": fedavg_logits,
    "dsfl": dsfl,
    "mhat": mhat,
    "fedkd": fedkd,
}

__all__ = [
    "ALGORITHMS",
    "adafd",
    "centralised",
    "dsfl",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fedavg_logits",
    "fedkd",
    "fedopt",
    "fedprox",
    "fedyogi",
    "isolated",
    "mhat",
]
