"""A Motet server inside a Flower ServerApp. Its clients are reached through SuperNodes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError
from motet.experiment.commands.recipe_runner import FinishedRun
from motet.experiment.commands.run_folder import create_new_folder, load_config
from motet.experiment.commands.serve_run import serve_run
from motet.experiment.recipe.recipe_files import load_recipe
from motet.experiment.recipe.run_config import RunConfig
from motet.transport.connections import Connections
from motet.transport.flower_grid import serve_flower
from motet.transport.flower_relay import GridPost

KEYS = {"recipe": str, "settings": str, "out": str, "resume": bool}


def serve_on_flower(grid: Any, run_config: Mapping[str, Any], log: Callable[[str], None]) -> FinishedRun:
    """Run the recipe of a Flower run with the clients behind its SuperNodes."""
    config, out, resume = parse_run_config(run_config)

    def listen(connections: Connections) -> str:
        serve_flower(connections, GridPost(grid), log)
        return f"Flower run {grid.run.run_id}"

    return serve_run(config, out or create_new_folder(config.recipe), resume=resume, log=log, listen=listen)


def parse_run_config(run_config: Mapping[str, Any]) -> tuple[RunConfig, Path | None, bool]:
    """Return the configuration, the folder and whether to resume, from the values of `flwr run --run-config`."""
    for key, value in run_config.items():
        if key not in KEYS or not isinstance(value, KEYS[key]):
            expected = ", ".join(f"{name} ({kind.__name__})" for name, kind in KEYS.items())
            raise ConfigError(f"run-config: {key}={value!r}; expected {expected}.")
    settings = shlex.split(run_config.get("settings", ""))
    out = Path(run_config["out"]) if run_config.get("out") else None
    resume = run_config.get("resume", False)
    config = load_recipe(run_config.get("recipe") or "quickstart", ["transport.type=flower", *settings])
    if config.transport.type != "flower":
        raise ConfigError(f"run-config: settings has transport.type={config.transport.type}; leave it out.")
    if resume and out is None:
        raise ConfigError('run-config: resume needs the folder of the run; set out="FOLDER".')
    if resume and out is not None:
        config = replace(load_config(out), transport=config.transport)
    return config, out, resume
