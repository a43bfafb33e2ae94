"""One file a paper. An algorithm is a row of this table."""

from __future__ import annotations

from collections.abc import Callable

from motet.algorithms.centralised import centralised
from motet.algorithms.clustered import percfl
from motet.algorithms.ditto import ditto
from motet.algorithms.fedavg import fedavg
from motet.algorithms.fedbn import fedbn
from motet.algorithms.fedopt import fedadagrad, fedadam, fedopt, fedyogi
from motet.algorithms.fedprox import fedprox
from motet.algorithms.fedsplit import fedsplit
from motet.algorithms.grouped import fedavg_st
from motet.algorithms.isolated import isolated
from motet.algorithms.spfl import spfl_like
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
    "fedsplit": fedsplit,
    "fedbn": fedbn,
    "ditto": ditto,
    "percfl": percfl,
    "spfl_like": spfl_like,
    "fedavg_st": fedavg_st,
}

__all__ = [
    "ALGORITHMS",
    "centralised",
    "ditto",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fedavg_st",
    "fedbn",
    "fedopt",
    "fedprox",
    "fedsplit",
    "fedyogi",
    "isolated",
    "percfl",
    "spfl_like",
]
