"""Recipes: YAML files, by name or path, with overrides from the command line (`section.key=value`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from motet.core.errors import ConfigError
from motet.core.suggestions import name_choices
from motet.experiment.recipe.renamed_keys import update_names
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig
from motet.experiment.recipe.start_folder import locate_files
from motet.experiment.recipe.yaml_files import parse_yaml
from motet.missing_paths import describe_missing, is_path

RECIPE_SUFFIXES = (".yaml", ".yml")
# Solver options that a baseline with another algorithm takes over: the amount of training stays comparable.
SHARED_SOLVER_KEYS = ("batch", "epochs", "steps")


def list_recipes() -> dict[str, str]:
    """Return the names of the shipped recipes, each with a description."""
    return list_yaml_resources("motet.recipes")


def list_yaml_resources(package: str) -> dict[str, str]:
    """Return the names of the YAML files in a package, each with its first line, which describes it."""
    descriptions = {}
    for entry in sorted(resources.files(package).iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".yaml"):
            first_line = entry.read_text("utf-8").splitlines()[0]
            descriptions[entry.name.removesuffix(".yaml")] = first_line.removeprefix("#").strip()
    return descriptions


def load_recipe(name: str, overrides: Iterable[str] = ()) -> RunConfig:
    """Load a shipped recipe by name, or a YAML file by path, and apply `section.key=value` overrides."""
    return build_recipe(name, parse_overrides(overrides))


def build_recipe(recipe: str | Path | Mapping[str, Any], changes: Mapping[str, Any]) -> RunConfig:
    """Build the configuration of a recipe, by name, by path or as nested settings, with some of them changed."""
    if isinstance(recipe, Mapping):
        label, settings = "python", dict(recipe)
    else:
        label, text = _read_recipe(str(recipe))
        settings = locate_files(_parse_recipe(text, label), Path(recipe))
    settings = merge_settings(settings, changes)
    settings.pop("recipe", None)
    return RunConfig.from_settings(label, settings)


def baseline_config(config: RunConfig, name: str) -> RunConfig:
    """Return the run's configuration with the changes of one of its baselines."""
    settings = {k: v for k, v in config.to_dict().items() if k not in ("recipe", "baselines")}
    change = config.baselines[name] or {}
    if not isinstance(change, Mapping):
        raise ConfigError(f"baselines.{name} is {change!r}; expected options, such as algorithm: {name}.")
    if "algorithm" in change:
        settings["algorithm"] = {}
        if ComponentConfig.from_settings(change["algorithm"], "", "algorithm").type != config.algorithm.type:
            # The recipe's solver and server options were tuned for its own algorithm.
            shared = {k: v for k, v in config.solver.items() if k in SHARED_SOLVER_KEYS}
            settings |= {"solver": shared, "server": {}}
    return RunConfig.from_settings(f"{config.recipe}/{name}", merge_settings(settings, change))


def parse_overrides(overrides: Iterable[str]) -> dict[str, Any]:
    """Parse `section.key=value` overrides into nested settings."""
    settings: dict[str, Any] = {}
    for text in overrides:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise ConfigError(f"'{text}' is not a setting; write section.key=value, such as solver.lr=1e-4.")
        try:
            parsed = parse_yaml(value)
        except yaml.YAMLError:
            parsed = value
        for key in reversed(path.split(".")):
            parsed = {key: parsed}
        settings = _merge(settings, parsed)
    return update_names(settings)


def merge_settings(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested settings; `changes` win. `algorithm: fedavg` is short for `algorithm: {type: fedavg}`.

    A section that names another type starts without the options of the first. Empty `baselines` remove all baselines.
    """
    return _merge(update_names(settings), update_names(changes))


def _merge(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(settings)
    for key, value in changes.items():
        before = merged.get(key)
        if key == "baselines" and not value:
            merged[key] = {}
        elif isinstance(value, Mapping):
            section = {"type": before} if isinstance(before, str) else before
            if not isinstance(section, Mapping) or ("type" in value and value["type"] != section.get("type")):
                section = {}
            merged[key] = _merge(section, value)
        elif isinstance(value, str) and isinstance(before, Mapping) and "type" in before:
            merged[key] = before if before["type"] == value else {"type": value}
        else:
            merged[key] = value
    return merged


def _read_recipe(name: str) -> tuple[str, bytes]:
    """Return the label and the content of a recipe."""
    path, known = Path(name), list_recipes()
    if is_path(name) and not path.exists():
        raise ConfigError(
            f"{describe_missing(name, known)} Expected the .yaml file of a recipe, or a name from: motet list recipes"
        )
    if path.suffix in RECIPE_SUFFIXES:
        return path.stem, path.read_bytes()
    if name not in known and path.exists():
        raise ConfigError(
            f"'{name}' is not a recipe, which is a .yaml file. If it is your data, this proposes a recipe: "
            f"motet data inspect {name}"
        )
    if name not in known:
        if file := next((f"{name}{suffix}" for suffix in RECIPE_SUFFIXES if Path(f"{name}{suffix}").is_file()), ""):
            raise ConfigError(f"there is no recipe '{name}', but a file '{file}'. Run it by the name of the file.")
        raise ConfigError(f"there is no recipe '{name}'{name_choices(name, known, see='motet list recipes')}")
    return name, resources.files("motet.recipes").joinpath(f"{name}.yaml").read_bytes()


def _parse_recipe(text: bytes, label: str) -> dict[str, Any]:
    try:
        settings = parse_yaml(text) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"recipe '{label}' is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(settings, dict):
        raise ConfigError(
            f"recipe '{label}' is a {type(settings).__name__}; expected sections such as 'model:' and 'data:'."
        )
    return settings
