"""One file a paper. An algorithm is a row of this table."""

from __future__ import annotations

from collections.abc import Callable

from motet.algorithms.atc import atc
from motet.algorithms.centralised import centralised
from motet.algorithms.fedavg import fedavg
from motet.algorithms.fedopt import fedadagrad, fedadam, fedopt, fedyogi
from motet.algorithms.fedprox import fedprox
from motet.algorithms.isolated import isolated
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
    "atc": atc,
}

__all__ = [
    "ALGORITHMS",
    "atc",
    "centralised",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fedopt",
    "fedprox",
    "fedyogi",
    "isolated",
]
