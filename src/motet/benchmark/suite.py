"""Suites: grids of recipes in YAML. A cell is base ⊕ column ⊕ row (⊕ what makes it quick), where the later wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from motet.benchmark.claims import Claim
from motet.benchmark.table_metrics import parse_metric
from motet.core.errors import ConfigError, did_you_mean
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.recipe_files import list_yaml_resources

Changes = Mapping[str, Any]


@dataclass(frozen=True)
class ColumnSpec:
    """One column of a table: what it changes in the recipe, and what is read off each run (see `Reading`)."""

    set: Mapping[str, Any] = field(default_factory=dict)
    shows: tuple[str, ...] = ()
    of: str | None = None  # only clients whose names begin so
    split: str = "global"  # what the server's model is judged on


@dataclass(frozen=True)
class TableSpec:
    """Methods by columns. `bounds` are rows that are compared with, never ranked."""

    title: str
    rows: Mapping[str, Any]
    columns: Mapping[str, Any]
    shows: tuple[str, ...] = ()
    base: Mapping[str, Any] = field(default_factory=dict)
    bounds: Mapping[str, Any] | None = None  # None: the suite's
    published: Mapping[str, Any] = field(default_factory=dict)
    average: Mapping[str, Any] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    note: str = ""
    on_request: bool = False  # only if --only names it: it needs a corpus or a model that few have at hand

    def column(self, name: str) -> ColumnSpec:
        return instantiate(ColumnSpec, self.columns[name] or {}, f"columns.{name}")

    def shown(self, name: str) -> dict[str, str]:
        """What is read off a column's runs, by its heading; where that is several numbers, each is a column of its own."""
        shows = self.column(name).shows or self.shows or ("headline",)
        return {name: shows[0]} if len(shows) == 1 else {f"{name} {s.removeprefix('own ')}": s for s in shows}

    @property
    def headings(self) -> list[str]:
        return [*(heading for name in self.columns for heading in self.shown(name)), *self.average]

    def check(self, rows: Sequence[str]) -> None:
        """Whatever names a row or column that there is not would be passed over in silence; `rows` has the bounds too."""
        for name in (*rows, *self.columns, *self.average):
            if not isinstance(name, str):
                raise ConfigError(f"the name {name!r} is no text to YAML; put it in quotes: '{name}'.")
        for name in self.columns:
            for shows in self.shown(name).values():
                parse_metric(shows)
        for row, numbers in self.published.items():
            _known("published", "row", row, rows)
            for column in numbers or {}:
                _known(f"published of {row}", "column", column, [*self.columns, *self.average])
        for mean, parts in self.average.items():
            for part in parts:
                _known(f"average {mean}", "column", part, [*self.columns, *self.headings])
        for claim in map(Claim.parse, self.claims):
            for side in (claim.left, claim.right):
                _known(f"claim '{claim.text}'", "row", side.row, [*rows, "*"])
                _known(f"claim '{claim.text}'", "column", side.column or "*", [*self.headings, "*"])


@dataclass(frozen=True)
class QuickSettings:
    """What makes a suite a matter of minutes: changes to every recipe, fewer cells, fewer seeds."""

    set: Mapping[str, Any] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    seeds: int = 1


@dataclass(frozen=True)
class Suite:
    name: str
    title: str
    tables: Mapping[str, Any]
    paper: str = ""
    base: Mapping[str, Any] = field(default_factory=dict)
    bounds: Mapping[str, Any] = field(default_factory=dict)
    quick: QuickSettings = QuickSettings()

    def table(self, name: str) -> TableSpec:
        made: TableSpec = instantiate(TableSpec, self.tables[name], f"tables.{name}")
        try:
            made.check([*made.rows, *self.bounds_for(made)])
        except ConfigError as error:
            raise ConfigError(f"suite {self.name}, table {name}: {error}") from None
        return made

    def bounds_for(self, table: TableSpec) -> Changes:
        return self.bounds if table.bounds is None else table.bounds


def _known(said: str, kind: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        there = ", ".join(dict.fromkeys(known))
        raise ConfigError(
            f"{said} names the {kind} {name!r}, which there is not; write one of {there}.{did_you_mean(str(name), known)}"
        )


def list_suites() -> dict[str, str]:
    """Shipped suites and what each says of itself."""
    return list_yaml_resources("motet.suites")


def load_suite(name: str) -> Suite:
    """A shipped suite by name, or one's own by path."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.exists():
            raise ConfigError(
                f"there is no suite file '{name}'; give the path of a YAML file, or one of {', '.join(list_suites())}."
            )
        return parse_suite(path.stem, path.read_text("utf-8"))
    if name not in list_suites():
        raise ConfigError(
            f"there is no suite '{name}'; there is {', '.join(list_suites())}, or give a .yaml file.{did_you_mean(name, list_suites())}"
        )
    return parse_suite(name, resources.files("motet.suites").joinpath(f"{name}.yaml").read_text("utf-8"))


def parse_suite(name: str, text: str) -> Suite:
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"suite '{name}' is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(given, dict) or not isinstance(given.get("tables"), dict) or not given["tables"]:
        raise ConfigError(
            f"suite '{name}' has no tables; expected 'tables:' with rows and columns. See docs/guides/benchmarks.md."
        )
    suite: Suite = instantiate(Suite, {"name": name, **given}, f"suite {name}")
    for table in suite.tables:
        made = suite.table(table)
        for column in made.columns:
            made.column(column)
    return suite


def is_selected(path: Sequence[str], patterns: Sequence[str]) -> bool:
    """Is the cell at table/row/column wanted? A pattern is the beginning of a path, one of its parts, or a glob over it."""
    whole = "/".join(path)
    return not patterns or any(
        p in path or fnmatch(whole, p) or f"{whole}/".startswith(f"{p.rstrip('/')}/") for p in patterns
    )
