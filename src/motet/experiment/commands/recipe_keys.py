"""`motet list keys`: the keys of a recipe that do not depend on a component, with their meanings."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin, get_type_hints

from motet.experiment.recipe.key_meanings import read_meanings
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig
from motet.learning.solver import Solver

COMPONENT_MEANINGS = {
    "partition.type": "how rows are divided among clients (motet list partitions)",
    "algorithm.type": "the federated method (motet list algorithms)",
    "codec.up": "compression of updates (motet list codecs)",
    "codec.down": "compression of the global model (motet list codecs)",
    "secure.type": "secure aggregation (motet list secure)",
    "privacy.type": "differential privacy (motet list privacy)",
    "robust.type": "robust aggregation (motet list robust)",
    "attack.type": "a simulated attack, for benchmarks of robust rules",
    "transport.type": "how server and clients are connected (motet list transports)",
}


def list_keys() -> dict[str, str]:
    """Return every key with its meaning, such as "solver.lr"."""
    return dict(_describe_section(RunConfig, ""))


def _describe_section(kind: type, prefix: str) -> Iterator[tuple[str, str]]:
    meanings, hints = read_meanings(kind), get_type_hints(kind)
    for field in dataclasses.fields(kind):
        name, section = f"{prefix}{field.name}", _find_section(hints[field.name])
        if name == "recipe":  # set by Motet
            continue
        if name == "solver":
            yield from _describe_section(Solver, "solver.")
        elif section is ComponentConfig:
            yield f"{name}.type", meanings[field.name] or COMPONENT_MEANINGS[f"{name}.type"]
        elif section is not None:
            yield from _describe_section(section, f"{name}.")
        else:
            yield name, meanings[field.name] or COMPONENT_MEANINGS[name]


def _find_section(hint: Any) -> type | None:
    """Return the dataclass of a key that is a section, also of one that may be null."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return next((kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)), None)
