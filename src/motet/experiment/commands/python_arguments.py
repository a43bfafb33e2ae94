"""Arguments of the Python API: checked as the options of a recipe are, and recipe keys as arguments."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any, TypeVar

from motet.core.errors import ConfigError
from motet.experiment.recipe.config_parsing import instantiate, list_parameters
from motet.experiment.recipe.key_synonyms import find_key
from motet.learning.solver import Solver
from motet.models.model_config import ModelConfig
from motet.partitions import PARTITION_REGISTRY

T = TypeVar("T")
# Keys that are arguments of `motet.federation` without their section.
_PLAIN_KEYS = ("model.max_tokens", "model.freeze", "data.dev_share", "data.public_share")
_MODEL_KEYS = {field.name: f"model.{field.name}" for field in dataclasses.fields(ModelConfig) if field.name != "name"}
_FEDERATION_KEYS = {**_MODEL_KEYS, **{key.rpartition(".")[2]: key for key in _PLAIN_KEYS}}
_CLOSE = 0.8  # a misspelling; options of partitions are less similar


@cache
def check_arguments(function: Callable[..., T]) -> Callable[..., T]:
    """Return a function of an algorithm that checks its arguments, and converts them, as a recipe does."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*values: Any, **options: Any) -> T:
        known = {name: value for name, value in options.items() if name in signature.parameters}
        arguments = {**options, **signature.bind_partial(*values, **known).arguments}
        solver = arguments.get("solver", Solver())
        if not isinstance(solver, Solver):  # options alone would not say what the others are
            raise ConfigError(f"algorithm.solver is {solver!r}; expected an object: motet.Solver(lr=…).")
        return instantiate(function, arguments, "algorithm")

    return call


def write_python_argument(key: str, value: Any = ..., model: str = "tiny") -> str:
    """Return the Python call or argument that sets a recipe key: `model={'name': 'tiny', 'adapter': {'rank': 4}}`."""
    section, _, option = key.partition(".")
    text = "…" if value is ... else repr(value)
    if not option or option in ("type", "name"):
        return f"{section}={text}"
    if key in _PLAIN_KEYS or section == "partition":
        return f"{option}={text}"
    if section == "data":
        return f"motet.load(…, {option}={text})"
    for name in reversed(option.split(".")):
        text = f"{{'{name}': {text}}}"
    return f"{section}={{'name': '{model}', {text[1:]}" if section == "model" else f"{section}={text}"


def check_federation_options(options: Mapping[str, Any], partition: str, model: str) -> None:
    """Reject options of the model, which would be taken for options of the partition."""
    partition_options = list_parameters(PARTITION_REGISTRY.get(partition, "partition.type"))
    for name, value in options.items():
        if name in partition_options:
            continue
        key = name if name.startswith("model.") else find_key(name) or _find_similar_key(name)
        if key.startswith("model.") or key in _PLAIN_KEYS:
            raise ConfigError(
                f"federation: unknown argument '{name}'. Did you mean {write_python_argument(key, value, model)}?"
            )


def _find_similar_key(name: str) -> str:
    matches = difflib.get_close_matches(name.lower(), _FEDERATION_KEYS, n=1, cutoff=_CLOSE)
    return _FEDERATION_KEYS[matches[0]] if matches else ""
