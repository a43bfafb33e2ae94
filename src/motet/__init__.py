"""Motet: federated learning for text. Many private texts, one model, or one model each.

    import motet

    reviews = motet.load("movie-reviews", limit=2000, test_limit=500)
    clients = motet.federation(reviews, model="minilm", max_tokens=48, freeze=["embeddings", "layers 0-4"],
                               partition="label", clients=10, alpha=1.0)
    result = motet.run(clients, motet.fedopt(motet.Solver(lr=3e-4, batch=16)), rounds=8)
    print(result.final["accuracy"])
    motet.export(clients, result, "model")

Names are imported when they are first used, so `import motet` does not load torch.
"""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet.algorithms import adafd as adafd
    from motet.algorithms import atc as atc
    from motet.algorithms import centralized as centralized
    from motet.algorithms import ditto as ditto
    from motet.algorithms import dsfl as dsfl
    from motet.algorithms import fedadagrad as fedadagrad
    from motet.algorithms import fedadam as fedadam
    from motet.algorithms import fedavg as fedavg
    from motet.algorithms import fedavg_logits as fedavg_logits
    from motet.algorithms import fedavg_st as fedavg_st
    from motet.algorithms import fedbn as fedbn
    from motet.algorithms import fedkd as fedkd
    from motet.algorithms import fedopt as fedopt
    from motet.algorithms import fedprox as fedprox
    from motet.algorithms import fedsplit as fedsplit
    from motet.algorithms import fedyogi as fedyogi
    from motet.algorithms import isolated as isolated
    from motet.algorithms import mhat as mhat
    from motet.algorithms import percfl as percfl
    from motet.algorithms import spfl_like as spfl_like
    from motet.api import export as export
    from motet.api import federation as federation
    from motet.api import load as load
    from motet.api import run as run
    from motet.core.errors import MotetError as MotetError
    from motet.learning.custom_trainer import Trainer as Trainer
    from motet.learning.custom_trainer import custom_federation as custom_federation
    from motet.learning.solver import Solver as Solver

__version__ = "0.1.0"

_NAMES_BY_MODULE = {
    "motet.algorithms": (
        "centralized", "isolated", "fedavg", "fedprox", "fedopt", "fedadam", "fedyogi", "fedadagrad",
        "fedsplit", "fedbn", "ditto", "percfl", "spfl_like", "fedavg_st", "atc",
        "adafd", "fedavg_logits", "dsfl", "mhat", "fedkd",
    ),
    "motet.api": ("load", "federation", "run", "export"),
    "motet.core.errors": ("MotetError",),
    "motet.learning.custom_trainer": ("Trainer", "custom_federation"),
    "motet.learning.solver": ("Solver",),
}  # fmt: skip
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}
_RENAMED = {"centralised": "centralized", "own_federation": "custom_federation"}

__all__ = ["__version__", *_MODULES]  # noqa: PLE0604 - the names come from the table


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        _warn_renamed(name)
        return getattr(importlib.import_module("motet.deprecated"), name)
    if name not in _MODULES:
        raise AttributeError(f"module 'motet' has no attribute '{name}'; it has {', '.join(_MODULES)}")
    return getattr(importlib.import_module(_MODULES[name]), name)


@cache
def _warn_renamed(name: str) -> None:
    message = f"motet.{name} is now motet.{_RENAMED[name]}; the old name will stop working in the next release."
    warnings.warn(message, DeprecationWarning, stacklevel=3)


def __dir__() -> list[str]:
    return sorted(__all__)
