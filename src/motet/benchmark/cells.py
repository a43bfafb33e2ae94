"""The cells of a suite's tables, and the runs they need: cells that ask for the same run share it."""

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

# What a suite's runs do differently from a person's: a grid has no use for hundreds of models.
SUITE_DEFAULTS: dict[str, Any] = {"checkpoint": {"seconds": 60, "last": False}, "evaluation": {"items": True}}
_ELSEWHERE = (
    "recipe",
    "device",
    "transport",
    "checkpoint",
    "baselines",
    "track",
)  # where a run happens, not what it is


@dataclass(frozen=True)
class BenchmarkRun:
    """One training, named after what it is: the same run asked for twice has the same name."""

    name: str
    config: RunConfig

    @property
    def data_key(self) -> str:
        """Runs with equal ones are on the same federation."""
        return federation_key(self.config)


@dataclass(frozen=True)
class Cell:
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
    """Every cell of every table that is wanted, with its run; a recipe that cannot work is said here."""
    found: list[Cell] = []
    for name in suite.tables:
        table = suite.table(name)
        if table.on_request and not only:
            continue
        for row, change in {**table.rows, **suite.bounds_for(table)}.items():
            for column in table.columns:
                path = (name, row, column)
                if not is_selected(path, only) or (quick and not is_selected(path, suite.quick.only)):
                    continue
                layers = [
                    suite.base,
                    table.base,
                    table.column(column).set,
                    change or {},
                    suite.quick.set if quick else {},
                ]
                found += [
                    Cell(*path, seed, _run("/".join((suite.name, *path)), layers, seed, device)) for seed in seeds
                ]
    if not found:
        said = ", ".join(only) if only else "--quick"
        raise ConfigError(f"suite {suite.name}: no cell is left by {said}; tables are {', '.join(suite.tables)}.")
    return found


def unique_runs(cells: Sequence[Cell]) -> dict[str, BenchmarkRun]:
    """The runs that cells need, each once, those on the same data beside each other."""
    once = {cell.run.name: cell.run for cell in cells}
    order: dict[str, int] = {}
    for run in once.values():
        order.setdefault(run.data_key, len(order))
    return dict(sorted(once.items(), key=lambda item: order[item[1].data_key]))


def check_runs(runs: Mapping[str, BenchmarkRun]) -> None:
    """What cannot work is said before the first run begins."""
    for run in runs.values():
        try:
            build_components(run.config)
            parse_partition(run.config.partition)
        except ConfigError as error:
            raise ConfigError(f"{run.config.recipe}: {error}") from None


def _run(label: str, layers: Sequence[Mapping[str, Any]], seed: int, device: str) -> BenchmarkRun:
    given: dict[str, Any] = {}
    for layer in (SUITE_DEFAULTS, *layers, {"seed": seed, "device": device}):
        given = merge_settings(given, layer)
    try:
        config = RunConfig.from_settings(label, given)
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from None
    said = {k: v for k, v in config.to_dict().items() if k not in _ELSEWHERE}
    key = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:10]
    words = (config.algorithm.type, config.data.name or "own", config.model.name, f"s{seed}", key)
    return BenchmarkRun(re.sub(r"[^\w.-]+", "_", "-".join(words)), config)


def without_worker_processes(run: BenchmarkRun) -> BenchmarkRun:
    """The same run without worker processes: where several runs stand side by side, each is one process."""
    transport = replace(run.config.transport, options={**run.config.transport.options, "workers": 0})
    return replace(run, config=replace(run.config, transport=transport))
