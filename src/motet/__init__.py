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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet.algorithms import *  # noqa: F403 - every algorithm is also motet.<name>
    from motet.api import export as export
    from motet.api import federation as federation
    from motet.api import load as load
    from motet.api import profile as profile
    from motet.api import run as run
    from motet.api import run_recipe as run_recipe
    from motet.core.errors import MotetError as MotetError
    from motet.learning.custom_trainer import Trainer as Trainer
    from motet.learning.custom_trainer import custom_federation as custom_federation
    from motet.learning.flower_clients import flower_federation as flower_federation
    from motet.learning.solver import Solver as Solver
    from motet.report.run_callback import RunCallback as RunCallback

__version__ = "0.1.0"

_NAMES_BY_MODULE = {
    "motet.api": ("load", "federation", "run", "run_recipe", "export", "profile"),
    "motet.core.errors": ("MotetError",),
    "motet.learning.custom_trainer": ("Trainer", "custom_federation"),
    "motet.learning.flower_clients": ("flower_federation",),
    "motet.learning.solver": ("Solver",),
    "motet.report.run_callback": ("RunCallback",),
}  # fmt: skip
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}

__all__ = ["__version__", *_MODULES]  # noqa: PLE0604 - the names come from the table


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    if name.startswith("_"):  # asked for by tools such as inspect and pytest; do not load torch for it
        raise AttributeError(f"module 'motet' has no attribute '{name}'")
    algorithms = importlib.import_module("motet.algorithms").ALGORITHMS
    if name not in algorithms:
        from motet.core.suggestions import name_choices

        choices = name_choices(name, [*_MODULES, *algorithms], verb="it has", see="dir(motet)")
        raise AttributeError(f"module 'motet' has no attribute '{name}'{choices}")
    check_arguments = importlib.import_module("motet.experiment.commands.python_arguments").check_arguments
    return check_arguments(algorithms[name])


def __dir__() -> list[str]:
    return sorted([*__all__, *importlib.import_module("motet.algorithms").ALGORITHMS])
