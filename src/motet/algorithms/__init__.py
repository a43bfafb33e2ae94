"""All algorithms, by their names in recipes. Each paper has its own module."""

from __future__ import annotations

from collections.abc import Callable

from motet.algorithms.adafd import adafd
from motet.algorithms.atc import atc
from motet.algorithms.centralized import centralized
from motet.algorithms.ditto import ditto
from motet.algorithms.fedavg import fedavg
from motet.algorithms.fedavg_st import fedavg_st
from motet.algorithms.fedbn import fedbn
from motet.algorithms.fedopt import fedadagrad, fedadam, fedopt, fedyogi
from motet.algorithms.fedprox import fedprox
from motet.algorithms.fedsplit import fedsplit
from motet.algorithms.isolated import isolated
from motet.algorithms.logit_baselines import dsfl, fedavg_logits, fedkd, mhat
from motet.algorithms.percfl import percfl
from motet.algorithms.spfl import spfl_like
from motet.core.program import Algorithm

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "centralized": centralized,
    "isolated": isolated,
    "fedavg": fedavg,
    "fedprox": fedprox,
    "fedopt": fedopt,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "fedadagrad": fedadagrad,
    "atc": atc,
    "adafd": adafd,
    "fedavg_logits": fedavg_logits,
    "dsfl": dsfl,
    "mhat": mhat,
    "fedkd": fedkd,
    "fedsplit": fedsplit,
    "fedbn": fedbn,
    "ditto": ditto,
    "percfl": percfl,
    "spfl_like": spfl_like,
    "fedavg_st": fedavg_st,
}

__all__ = [
    "ALGORITHMS",
    "adafd",
    "atc",
    "centralized",
    "ditto",
    "dsfl",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fedavg_logits",
    "fedavg_st",
    "fedbn",
    "fedkd",
    "fedopt",
    "fedprox",
    "fedsplit",
    "fedyogi",
    "isolated",
    "mhat",
    "percfl",
    "spfl_like",
]
