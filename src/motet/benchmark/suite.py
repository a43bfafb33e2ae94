"""Suites: grids of recipes in YAML.

The recipe of a cell is the merge of the suite's base, the table's base, the column, the row and, for a quick run, the
quick settings. Later settings win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from motet.benchmark.claims import Claim
from motet.benchmark.error_labels import label_config_errors
from motet.benchmark.table_metrics import PRIMARY_METRIC, parse_metric
from motet.core.errors import ConfigError
from motet.core.suggestions import did_you_mean
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.recipe_files import RECIPE_SUFFIXES, list_yaml_resources
from motet.experiment.recipe.run_config import require_folder_name
from motet.experiment.recipe.yaml_files import parse_yaml
from motet.missing_paths import describe_missing, is_path

RecipeSettings = Mapping[str, Any]


@dataclass(frozen=True)
class ColumnSpec:
    """A column of a table: its changes to the recipe, and the metrics it shows of each run (see `table_metrics`)."""

    set: RecipeSettings = field(default_factory=dict)
    shows: tuple[str, ...] = ()
    clients: str | None = None  # only clients with names that start with this
    split: str = "global"  # the split on which the server's model is evaluated


@dataclass(frozen=True)
class TuneSpec:
    """A search before the runs of a table: settings are chosen on the development set.

    Every row has the same number of trials, also the bounds. A row of `rows` searches its own keys in place of `keys`;
    without keys, it keeps its settings.
    """

    keys: Mapping[str, Any] = field(default_factory=dict)  # setting -> list of values, or a range such as 1e-4..1e-2
    rows: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    trials: int | None = None  # of each row; None: the smallest grid
    seeds: int = 1  # of each trial
    at: str | None = None  # the column whose settings all columns use; None: each column has its own search
    set: RecipeSettings = field(default_factory=dict)  # changes to the recipe of a trial, e.g. fewer rounds
    metric: str | None = None  # None: the first score that the column shows

    def row_keys(self, row: str) -> Mapping[str, Any]:
        keys: Mapping[str, Any] = self.rows.get(row, self.keys) or {}
        return keys


@dataclass(frozen=True)
class TableSpec:
    """A table of methods (rows) by columns. `bounds` are further rows for reference; they are not ranked."""

    title: str
    rows: Mapping[str, RecipeSettings | None]
    columns: Mapping[str, Mapping[str, Any] | None]
    shows: tuple[str, ...] = ()
    base: RecipeSettings = field(default_factory=dict)
    bounds: Mapping[str, RecipeSettings | None] | None = None  # None: the bounds of the suite
    published: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    average: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    note: str = ""
    tune: TuneSpec | None = None  # None: the search of the suite
    compare_columns: tuple[str, ...] = ()  # rows with a panel of learning curves that has a line for each column
    on_request: bool = False  # run only if --only selects it, because its corpus or model is hard to get

    def column(self, name: str) -> ColumnSpec:
        return instantiate(ColumnSpec, self.columns[name] or {}, f"columns.{name}")

    def metrics(self, name: str) -> dict[str, str]:
        """Return the metrics of a column by heading. A column with several metrics becomes several table columns."""
        shows = self.column(name).shows or self.shows or (PRIMARY_METRIC,)
        if len(shows) == 1:
            return {name: shows[0]}
        short = {metric: metric.removeprefix("own ").removeprefix("local ") for metric in shows}
        is_unique = len(set(short.values())) == len(shows)  # not so for "local score" beside "score"
        return {f"{name} {short[metric] if is_unique else metric}": metric for metric in shows}

    @property
    def headings(self) -> list[str]:
        return [*(heading for name in self.columns for heading in self.metrics(name)), *self.average]

    def check(self, rows: Sequence[str]) -> None:
        """Raise ConfigError if published numbers, averages or claims name unknown rows or columns.

        `rows` are the rows of the table and its bounds.
        """
        for name in (*rows, *self.columns, *self.average):
            if not isinstance(name, str):
                raise ConfigError(f"the name {name!r} is not a string in YAML. Put it in quotes: '{name}'.")
        for name in self.columns:
            for metric in self.metrics(name).values():
                parse_metric(metric)
        for row, numbers in self.published.items():
            check_known("published", "row", row, rows)
            for column in numbers or {}:
                check_known(f"published of {row}", "column", column, [*self.columns, *self.average])
        for average, parts in self.average.items():
            for part in parts:
                check_known(f"average {average}", "column", part, [*self.columns, *self.headings])
        for row in self.compare_columns:
            check_known("compare_columns", "row", row, rows)
        for claim in map(Claim.parse, self.claims):
            for side in (claim.left, claim.right):
                check_known(f"claim '{claim.text}'", "row", side.row, [*rows, "*"])
                check_known(f"claim '{claim.text}'", "column", side.column or "*", [*self.headings, "*"])
        if self.tune is not None:
            for row in self.tune.rows:
                check_known("tune", "row", row, rows)
            check_known("tune.at", "column", self.tune.at or next(iter(self.columns)), list(self.columns))


@dataclass(frozen=True)
class QuickSettings:
    """Settings that make a suite run in minutes: changes to every recipe, fewer cells, fewer seeds."""

    set: RecipeSettings = field(default_factory=dict)
    only: tuple[str, ...] = ()
    seeds: int = 1
    tune: TuneSpec = TuneSpec()  # replaces the searches of all tables, whose values are not meant for small data


@dataclass(frozen=True)
class Suite:
    name: str
    title: str
    tables: Mapping[str, Mapping[str, Any]]
    paper: str = ""
    base: RecipeSettings = field(default_factory=dict)
    bounds: Mapping[str, RecipeSettings | None] = field(default_factory=dict)
    quick: QuickSettings = QuickSettings()
    tune: TuneSpec = TuneSpec()
    overview: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # kinds of settings -> columns

    def table(self, name: str) -> TableSpec:
        if name not in self._parsed_tables:
            table: TableSpec = instantiate(TableSpec, self.tables[name], f"tables.{name}")
            with label_config_errors(f"suite {self.name}, table {name}"):
                table.check([*table.rows, *self.bounds_for(table)])
            self._parsed_tables[name] = table
        return self._parsed_tables[name]

    @cached_property
    def _parsed_tables(self) -> dict[str, TableSpec]:
        return {}

    def bounds_for(self, table: TableSpec) -> Mapping[str, RecipeSettings | None]:
        return self.bounds if table.bounds is None else table.bounds

    def search_for(self, table: TableSpec, quick: bool = False) -> TuneSpec:
        if quick:
            return self.quick.tune
        return self.tune if table.tune is None else table.tune


def list_suites() -> dict[str, str]:
    """Return the names of the shipped suites, each with a description."""
    return list_yaml_resources("motet.suites")


def load_suite(name: str) -> Suite:
    """Load a shipped suite by name, or a YAML file by path."""
    path = Path(name)
    return parse_suite(path.stem if is_suite_file(name) else name, read_suite_text(name))


def read_suite_text(name: str) -> str:
    if is_path(name) and not Path(name).exists():
        raise ConfigError(
            f"{describe_missing(name, list_suites())} Expected the .yaml file of a suite, or one of "
            f"{', '.join(list_suites())}."
        )
    if is_suite_file(name):
        try:
            return Path(name).read_text("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"suite file '{name}' is not UTF-8 text ({error}). Save it as UTF-8.") from None
    if name not in list_suites():
        raise ConfigError(
            f"there is no suite '{name}'. Use one of {', '.join(list_suites())}, or the path of a .yaml file."
            f"{did_you_mean(name, list_suites())}"
        )
    return resources.files("motet.suites").joinpath(f"{name}.yaml").read_text("utf-8")


def is_suite_file(name: str) -> bool:
    return Path(name).suffix in RECIPE_SUFFIXES


def parse_suite(name: str, text: str) -> Suite:
    """Parse and check a suite in YAML."""
    try:
        settings = parse_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"suite '{name}' is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(settings, dict) or not isinstance(settings.get("tables"), dict) or not settings["tables"]:
        raise ConfigError(
            f"suite '{name}' has no tables; expected 'tables:' with rows and columns. See docs/guides/benchmarks.md."
        )
    suite: Suite = instantiate(Suite, {"name": name, **settings}, f"suite {name}")
    for table_name in suite.tables:
        require_folder_name(str(table_name), f"suite {name}, tables")  # its figures are files with this name
        table = suite.table(table_name)
        for column in table.columns:
            table.column(column)
    _check_searches(suite)
    return suite


def _check_searches(suite: Suite) -> None:
    """Raise ConfigError if a search of all tables names a row that none of them has."""
    tables = [suite.table(name) for name in suite.tables]
    rows = [row for table in tables for row in (*table.rows, *suite.bounds_for(table))]
    for source, search in (("tune", suite.tune), ("quick.tune", suite.quick.tune)):
        for row in search.rows:
            check_known(f"suite {suite.name}: {source}", "row", row, rows)


def is_selected(path: Sequence[str], patterns: Sequence[str]) -> bool:
    """Return whether a cell's path (table, row, column) matches a pattern, or there are no patterns.

    A pattern is a table, a row, a column, the beginning of a path (table/row), or a glob over the whole path.
    """
    joined = "/".join(path)
    return not patterns or any(
        p in path or fnmatch(joined, p) or f"{joined}/".startswith(f"{p.rstrip('/')}/") for p in patterns
    )


def check_known(source: str, kind: str, name: str, known: Sequence[str]) -> None:
    """Raise an error if a part of a suite names a row or a column that does not exist."""
    if name not in known:
        raise ConfigError(
            f"{source} names the {kind} {name!r}, which does not exist; expected one of "
            f"{', '.join(dict.fromkeys(known))}.{did_you_mean(str(name), known)}"
        )
