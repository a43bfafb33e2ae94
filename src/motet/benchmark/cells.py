"""The cells of a suite's tables and the runs they need. Cells with the same configuration share one run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from motet.benchmark.suite import Suite, is_selected
from motet.core.errors import ConfigError
from motet.experiment.build.component_builders import build_components
from motet.experiment.build.federation_builder import federation_key
from motet.experiment.build.partition_builder import parse_partition
from motet.experiment.recipe.recipe_files import merge_settings
from motet.experiment.recipe.run_config import RunConfig

# Suites save no final checkpoints, but per-example scores for significance tests.
SUITE_DEFAULTS: dict[str, Any] = {
    "checkpoint": {"seconds": 60, "last": False},
    "evaluation": {"save_example_scores": True},
}
# These sections say where and how a run executes. They do not change its result, so they are not part of its name.
_EXECUTION_SECTIONS = ("recipe", "device", "transport", "checkpoint", "baselines", "track")


@dataclass(frozen=True)
class BenchmarkRun:
    """A training run. Its name contains a hash of the configuration, so equal runs have equal names."""

    name: str
    config: RunConfig

    @property
    def data_key(self) -> str:
        """Runs with equal keys can share a federation."""
        return federation_key(self.config)


@dataclass(frozen=True)
class Cell:
    """A cell of a table, for one seed."""

    table: str
    row: str
    column: str
    seed: int
    run: BenchmarkRun

    def __str__(self) -> str:
        return f"{self.table}/{self.row}/{self.column}, seed {self.seed}"


def build_cells(
    suite: Suite, seeds: Sequence[int], *, quick: bool = False, only: Sequence[str] = (), device: str = "auto"
) -> list[Cell]:
    """Return the selected cells of all tables, with their runs. Raise ConfigError for an invalid recipe."""
    cells: list[Cell] = []
    for name in suite.tables:
        table = suite.table(name)
        if table.on_request and not only:
            continue
        for row, row_settings in {**table.rows, **suite.bounds_for(table)}.items():
            for column in table.columns:
                path = (name, row, column)
                if not is_selected(path, only) or (quick and not is_selected(path, suite.quick.only)):
                    continue
                layers = [suite.base, table.base, table.column(column).set, row_settings or {}]
                if quick:
                    layers.append(suite.quick.set)
                label = "/".join((suite.name, *path))
                cells += [
                    Cell(table=name, row=row, column=column, seed=seed, run=_build_run(label, layers, seed, device))
                    for seed in seeds
                ]
    if not cells:
        selection = ", ".join(only) if only else "--quick"
        raise ConfigError(
            f"suite {suite.name}: no cell matches {selection}. Select a table ({', '.join(suite.tables)}), "
            "a row, a column, or table/row/column."
        )
    return cells


def unique_runs(cells: Sequence[Cell]) -> dict[str, BenchmarkRun]:
    """Return the runs of the cells by name, each once, with runs on the same data next to each other."""
    runs = {cell.run.name: cell.run for cell in cells}
    order: dict[str, int] = {}
    for run in runs.values():
        order.setdefault(run.data_key, len(order))
    return dict(sorted(runs.items(), key=lambda item: order[item[1].data_key]))


def check_runs(runs: Mapping[str, BenchmarkRun]) -> None:
    """Raise ConfigError for a run that cannot work, before the first run starts."""
    for run in runs.values():
        try:
            build_components(run.config)
            parse_partition(run.config.partition)
        except ConfigError as error:
            raise ConfigError(f"{run.config.recipe}: {error}") from None


def without_worker_processes(run: BenchmarkRun) -> BenchmarkRun:
    """Return the run limited to one process, for several runs at the same time."""
    transport = replace(run.config.transport, options={**run.config.transport.options, "workers": 0})
    return replace(run, config=replace(run.config, transport=transport))


def _build_run(label: str, layers: Sequence[Mapping[str, Any]], seed: int, device: str) -> BenchmarkRun:
    settings: dict[str, Any] = {}
    for layer in (SUITE_DEFAULTS, *layers, {"seed": seed, "device": device}):
        settings = merge_settings(settings, layer)
    try:
        config = RunConfig.from_settings(label, settings)
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from None
    return BenchmarkRun(name=run_name(config), config=config)


def run_name(config: RunConfig) -> str:
    """Name a run after its algorithm, data, model, seed and a hash of its configuration."""
    identity = {k: v for k, v in config.to_dict().items() if k not in _EXECUTION_SECTIONS}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]
    name = "-".join((config.algorithm.type, config.data.name or "own", config.model.name, f"s{config.seed}", digest))
    return re.sub(r"[^\w.-]+", "_", name)
