"""`motet tune`: choose settings on the development set, with the same number of trials for every method.

Trials are runs, named by their content as those of a suite. So a search that is interrupted continues, and a larger
search reuses the trials of a smaller one. Only scores on the development set are read; the test set plays no part.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml

from motet.benchmark.cells import BenchmarkRun, run_name
from motet.benchmark.run_store import RunStore
from motet.core.errors import ConfigError
from motet.experiment.loop.json_files import write_json
from motet.experiment.loop.scores import LOWER_IS_BETTER
from motet.experiment.recipe.recipe_files import build_recipe, merge_settings, parse_overrides
from motet.transport.private_files import write_atomically

DEFAULT_DEV_SHARE = 0.1
RANGE = ".."  # solver.lr=1e-4..1e-2 draws from a range, evenly on a log scale
Values = tuple[Any, ...]


@dataclass(frozen=True)
class SearchKey:
    """A setting to search: a list of values, or the ends of a range."""

    path: str
    values: Values
    is_range: bool = False

    @staticmethod
    def parse(text: str) -> SearchKey:
        path, equals, values = text.partition("=")
        try:
            if equals and RANGE in values:
                low, high = (float(end) for end in values.split(RANGE))
                if 0 < low < high:
                    return SearchKey(path, (low, high), is_range=True)
            elif equals and values:
                return SearchKey(path, tuple(yaml.safe_load(value) for value in values.split(",")))
        except (ValueError, yaml.YAMLError):
            pass
        raise ConfigError(
            f"--search '{text}' is not a list or a range; write e.g. solver.lr=1e-4,1e-3 or solver.lr=1e-4..1e-2."
        )

    def describe_edge(self, value: Any) -> str:
        """Say so if the best value is the smallest or the largest of the list: a better one may lie outside."""
        numbers = [v for v in self.values if isinstance(v, int | float)]
        if self.is_range or len(numbers) < len(self.values) or len(numbers) < 2 or min(numbers) < value < max(numbers):
            return ""
        return f"{self.path} {value:g} is at the edge of the grid"


@dataclass(frozen=True)
class Search:
    """The trials of all methods. `methods` maps each name to the keys that it searches."""

    recipe: str
    changes: Mapping[str, Any]
    methods: Mapping[str, tuple[SearchKey, ...]]
    trials: int | None = None
    seeds: int = 1
    seed: int = 0

    @property
    def budget(self) -> int:
        """The number of trials of every method: what was asked for, but no more than the smallest grid has."""
        grids = [math.prod(len(key.values) for key in keys) for keys in self.methods.values() if not _has_range(keys)]
        if self.trials is None and len(grids) < len(self.methods):
            raise ConfigError("--trials is missing; a search over a range needs a number of trials.")
        budget = min([*grids, *([self.trials] if self.trials is not None else [])])
        if budget < 1:
            raise ConfigError(f"--trials is {self.trials}; expected at least 1.")
        return budget

    def settings(self, method: str) -> list[dict[str, Any]]:
        """Return the values of each trial of a method. The same seed gives the same trials."""
        keys = self.methods[method]
        rng = np.random.default_rng([self.seed, *(ord(c) for c in "".join(key.path for key in keys))])
        if not _has_range(keys):
            grid = list(itertools.product(*(key.values for key in keys)))
            order = rng.permutation(len(grid)) if self.budget < len(grid) else range(len(grid))
            chosen = [grid[i] for i in sorted(list(order)[: self.budget])]
        else:
            chosen = [tuple(_draw(key, rng) for key in keys) for _ in range(self.budget)]
        return [dict(zip((key.path for key in keys), values, strict=True)) for values in chosen]

    def runs(self, device: str = "auto") -> Iterator[Trial]:
        """Yield every trial of every method, with its runs."""
        for method in self.methods:
            for values in self.settings(method):
                runs = [self._run(method, values, seed, device) for seed in range(self.seeds)]
                yield Trial(method, values, tuple(runs))

    def _run(self, method: str, values: Mapping[str, Any], seed: int, device: str) -> BenchmarkRun:
        config = build_recipe(self.recipe, self.changes)
        share = max(group.data.dev_share for group in config.client_groups) or DEFAULT_DEV_SHARE
        changes: dict[str, Any] = dict(self.changes)
        for change in (
            {"data": {"dev_share": share}, "device": device, "seed": config.seed + seed},
            {"algorithm": {"type": method}, "baselines": {}},
            parse_overrides(f"{path}={value}" for path, value in values.items()),
        ):
            changes = merge_settings(changes, change)
        label = ", ".join([method, *(f"{path}={value}" for path, value in values.items())])
        trial = replace(build_recipe(self.recipe, changes), recipe=f"{config.recipe}/{label}")
        return BenchmarkRun(name=run_name(trial), config=trial)


@dataclass(frozen=True)
class Trial:
    """Settings of a method, with one run per seed."""

    method: str
    values: Mapping[str, Any]
    runs: tuple[BenchmarkRun, ...]


@dataclass(frozen=True)
class Choice:
    """The best trial of a method on the development set, out of `trials`."""

    method: str
    trials: int
    metric: str
    score: float
    values: Mapping[str, Any]
    edges: tuple[str, ...]


def choose(search: Search, trials: Sequence[Trial], store: RunStore) -> list[Choice]:
    """Return the best settings of every method. Failed runs count as worse than all others."""
    choices = []
    for method, keys in search.methods.items():
        scored = [(_dev_score(trial, store), trial) for trial in trials if trial.method == method]
        finished = [(score, trial) for score, trial in scored if score is not None]
        if not finished:
            reason = next(filter(None, (store.failure(run.name) for _, t in scored for run in t.runs)), "not run")
            raise ConfigError(f"tune: no trial of {method} has a score on the development set: {reason}")
        metric = finished[0][0][0]
        sign = -1 if metric in LOWER_IS_BETTER else 1
        (_, score), best = max(finished, key=lambda pair: sign * pair[0][1])
        edges = tuple(edge for key in keys if (edge := key.describe_edge(best.values[key.path])))
        choices.append(Choice(method, len(scored), metric, score, dict(best.values), edges))
    return choices


def _dev_score(trial: Trial, store: RunStore) -> tuple[str, float] | None:
    """Return the metric that picks the best round, and its mean over seeds; None if a run failed."""
    scores, metric = [], ""
    for run in trial.runs:
        best = (store.summary(run.name) or {}).get("dev_best")
        if not best or not math.isfinite(best["dev"][best["by"]]):
            return None
        metric = best["by"]
        scores.append(best["dev"][metric])
    return metric, fmean(scores)


def render_choices(choices: Sequence[Choice]) -> str:
    """Render the best settings of every method as a Markdown table, with the budget and the edges."""
    lines = [
        f"| method | trials | {choices[0].metric} on dev | best settings | edges |",
        "| --- | ---: | ---: | --- | --- |",
    ]
    for choice in choices:
        values = ", ".join(f"`{path}={value}`" for path, value in choice.values.items())
        edges = "; ".join(choice.edges) or "–"
        lines.append(f"| {choice.method} | {choice.trials} | {choice.score:.4f} | {values} | {edges} |")
    return "\n".join(lines) + "\n"


def write_choices(folder: Path, choices: Sequence[Choice]) -> None:
    """Write tuning.md for readers, and tuning.json with the best settings of every method."""
    write_atomically(folder / "tuning.md", render_choices(choices).encode())
    best = {
        c.method: {
            "trials": c.trials,
            "metric": c.metric,
            "score": c.score,
            "settings": dict(c.values),
            "edges": c.edges,
        }
        for c in choices
    }
    write_json(folder / "tuning.json", best)


def parse_methods(methods: Sequence[str], searches: Sequence[str], default: str) -> dict[str, tuple[SearchKey, ...]]:
    """Return the keys of each method. `method:key=values` belongs to one method, `key=values` to all."""
    names = list(dict.fromkeys(methods)) or [default]
    keys: dict[str, list[SearchKey]] = {name: [] for name in names}
    for text in searches:
        owner, colon, rest = text.partition(":")
        if colon and "=" not in owner:
            if owner not in keys:
                raise ConfigError(f"--search '{text}' names the method {owner}; expected one of {', '.join(names)}.")
            keys[owner].append(SearchKey.parse(rest))
        else:
            for name in names:
                keys[name].append(SearchKey.parse(text))
    if missing := [name for name, of_method in keys.items() if not of_method]:
        raise ConfigError(f"--search is missing for {', '.join(missing)}; write e.g. --search solver.lr=1e-4,1e-3.")
    return {name: tuple(of_method) for name, of_method in keys.items()}


def _has_range(keys: Sequence[SearchKey]) -> bool:
    return any(key.is_range for key in keys)


def _draw(key: SearchKey, rng: np.random.Generator) -> Any:
    if not key.is_range:
        return key.values[int(rng.integers(len(key.values)))]
    low, high = (math.log(end) for end in key.values)
    return float(f"{math.exp(rng.uniform(low, high)):.3g}")
