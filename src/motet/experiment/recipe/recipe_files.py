"""Recipes: YAML by name or path, changed by section.key=value from the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from motet.core.errors import ConfigError, did_you_mean
from motet.experiment.recipe.renamed_keys import update_names
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig


def recipes() -> dict[str, str]:
    """Shipped recipes and what each says of itself."""
    return shipped("motet.recipes")


def shipped(package: str) -> dict[str, str]:
    """The YAML files that a package carries, and the first line of each."""
    found = {}
    for entry in sorted(resources.files(package).iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".yaml"):
            first = entry.read_text("utf-8").splitlines()[0]
            found[entry.name.removesuffix(".yaml")] = first.removeprefix("#").strip()
    return found


def load_recipe(name: str, overrides: Iterable[str] = ()) -> RunConfig:
    label, text = _text(name)
    given = merged(_parsed(text, label), changes(overrides))
    given.pop("recipe", None)
    return RunConfig.of(label, given)


def baseline_of(config: RunConfig, name: str) -> RunConfig:
    """The same run with the few changes that make it a baseline."""
    given = {k: v for k, v in config.plain().items() if k not in ("recipe", "baselines")}
    change = config.baselines[name] or {}
    if not isinstance(change, Mapping):
        raise ConfigError(f"baselines.{name} is {change!r}; expected options, such as algorithm: {name}.")
    if "algorithm" in change:
        given["algorithm"] = {}
        if ComponentConfig.of(change["algorithm"], "", "algorithm").type != config.algorithm.type:
            # another algorithm has its own solver and server; what the recipe says of them is not meant
            kept = {k: v for k, v in config.solver.items() if k in ("batch", "epochs", "steps")}
            given |= {"solver": kept, "server": {}}
    return RunConfig.of(f"{config.recipe}/{name}", merged(given, change))


def changes(overrides: Iterable[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for text in overrides:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise ConfigError(f"'{text}' is no setting; write section.key=value, such as solver.lr=1e-4.")
        try:
            parsed = yaml.safe_load(value)
        except yaml.YAMLError:
            parsed = value
        for key in reversed(path.split(".")):
            parsed = {key: parsed}
        given = _merged(given, parsed)
    return update_names(given)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` wins. A section given by name alone (algorithm: fedavg) is a section with that type."""
    return _merged(update_names(below), update_names(above))


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if isinstance(value, Mapping):
            base = {"type": old} if isinstance(old, str) else old
            if isinstance(base, Mapping) and "type" in value and value["type"] != base.get("type"):
                base = {}  # another entry of the table has other options
            result[key] = _merged(base if isinstance(base, Mapping) else {}, value)
        elif isinstance(value, str) and isinstance(old, Mapping) and "type" in old:
            result[key] = old if old["type"] == value else {"type": value}
        else:
            result[key] = value
    return result


def _text(name: str) -> tuple[str, str]:
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.exists():
            raise ConfigError(
                f"there is no recipe file '{name}'; give the path of a YAML file, or one of {', '.join(recipes())}."
            )
        return path.stem, path.read_text("utf-8")
    if name not in recipes():
        raise ConfigError(
            f"there is no recipe '{name}'; there is {', '.join(recipes())}, or give a .yaml file.{did_you_mean(name, recipes())}"
        )
    return name, resources.files("motet.recipes").joinpath(f"{name}.yaml").read_text("utf-8")


def _parsed(text: str, label: str) -> dict[str, Any]:
    try:
        given = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"recipe '{label}' is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(given, dict):
        raise ConfigError(
            f"recipe '{label}' is a {type(given).__name__}; expected sections such as 'model:' and 'data:'."
        )
    return given
