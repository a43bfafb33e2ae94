"""The cells of a suite's tables and the runs they need. Cells with the same configuration share one run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from motet.benchmark.error_labels import label_config_errors
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


CellPath = tuple[str, str, str]  # table, row, column


def select_cells(suite: Suite, *, quick: bool = False, only: Sequence[str] = ()) -> list[CellPath]:
    """Return the selected cells of all tables."""
    paths = [
        (name, row, column)
        for name in suite.tables
        if not (table := suite.table(name)).on_request or only
        for row in (*table.rows, *suite.bounds_for(table))
        for column in table.columns
    ]
    selected = [p for p in paths if is_selected(p, only) and not (quick and not is_selected(p, suite.quick.only))]
    if not selected:
        selection = ", ".join(only) if only else "--quick"
        raise ConfigError(
            f"suite {suite.name}: no cell matches {selection}. Select a table ({', '.join(suite.tables)}), "
            "a row, a column, or table/row/column."
        )
    return selected


def cell_settings(suite: Suite, path: CellPath, quick: bool = False) -> list[Mapping[str, Any]]:
    """Return the settings of a cell's recipe, without the seed. Later ones win."""
    name, row, column = path
    table = suite.table(name)
    row_settings = {**table.rows, **suite.bounds_for(table)}[row] or {}
    layers = [suite.base, table.base, table.column(column).set, row_settings]
    return [*layers, suite.quick.set] if quick else layers


def build_cells(
    suite: Suite,
    seeds: Sequence[int],
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    device: str = "auto",
    tuned: Mapping[CellPath, Mapping[str, Any]] = {},
) -> list[Cell]:
    """Return the selected cells of all tables, with their runs. Raise ConfigError for an invalid recipe.

    `tuned` are settings that a search has chosen.
    """
    cells = []
    for path in select_cells(suite, quick=quick, only=only):
        label, layers = "/".join((suite.name, *path)), [*cell_settings(suite, path, quick), tuned.get(path, {})]
        cells += [Cell(*path, seed=seed, run=build_run(label, layers, seed, device)) for seed in seeds]
    return cells


def unique_runs(cells: Sequence[Cell]) -> dict[str, BenchmarkRun]:
    """Return the runs of the cells by name."""
    return order_runs(cell.run for cell in cells)


def order_runs(all_runs: Iterable[BenchmarkRun]) -> dict[str, BenchmarkRun]:
    """Return runs by name, each once, with runs on the same data next to each other."""
    runs = {run.name: run for run in all_runs}
    order: dict[str, int] = {}
    for run in runs.values():
        order.setdefault(run.data_key, len(order))
    return dict(sorted(runs.items(), key=lambda item: order[item[1].data_key]))


def check_runs(runs: Mapping[str, BenchmarkRun]) -> None:
    """Raise ConfigError for a run that cannot work, before the first run starts."""
    for run in runs.values():
        with label_config_errors(run.config.recipe):
            build_components(run.config)
            parse_partition(run.config.partition)


def without_worker_processes(run: BenchmarkRun) -> BenchmarkRun:
    """Return the run limited to one process, for several runs at the same time."""
    transport = replace(run.config.transport, options={**run.config.transport.options, "workers": 0})
    return replace(run, config=replace(run.config, transport=transport))


def build_run(label: str, layers: Sequence[Mapping[str, Any]], seed: int, device: str) -> BenchmarkRun:
    """Build the run of a cell or of a trial."""
    settings: dict[str, Any] = {}
    for layer in (SUITE_DEFAULTS, *layers, {"seed": seed, "device": device}):
        settings = merge_settings(settings, layer)
    with label_config_errors(label):
        config = RunConfig.from_settings(label, settings)
    return BenchmarkRun(name=run_name(config), config=config)


def run_name(config: RunConfig) -> str:
    """Name a run after its algorithm, data, model, seed and a hash of its configuration."""
    identity = {k: v for k, v in config.to_dict().items() if k not in _EXECUTION_SECTIONS}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]
    name = "-".join((config.algorithm.type, config.data.name or "own", config.model.name, f"s{config.seed}", digest))
    return re.sub(r"[^\w.-]+", "_", name)
