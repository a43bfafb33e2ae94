"""`motet tune`: choose settings on the development set, with the same number of trials for every method.

Trials are runs, named by their content as those of a suite. So a search that is interrupted continues, and a larger
search reuses the trials of a smaller one. Trials are evaluated on the development set alone.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml

from motet.benchmark.cells import BenchmarkRun, run_name
from motet.benchmark.error_labels import label_config_errors
from motet.benchmark.run_store import RunStore
from motet.benchmark.table_metrics import CLIENT_KINDS, PRIMARY_METRIC, MetricSpec
from motet.core.errors import ConfigError
from motet.experiment.loop.metrics_log import read_metrics
from motet.experiment.loop.scores import is_lower_better
from motet.experiment.recipe.recipe_files import build_recipe, merge_settings, parse_overrides
from motet.experiment.recipe.yaml_files import parse_yaml
from motet.report.number_text import count_of, use_minus_signs
from motet.transport.json_files import write_json
from motet.transport.private_files import write_atomically

DEFAULT_DEV_SHARE = 0.1
RANGE = ".."  # solver.lr=1e-4..1e-2 draws from a range, evenly on a log scale
Values = tuple[Any, ...]
# These decide what is measured. A search over them would compare scores on other texts, or choose a lucky seed.
_FIXED_SECTIONS = ("seed", "data", "partition", "evaluation")
DEV_BEST = MetricSpec("dev-best", PRIMARY_METRIC)


@dataclass(frozen=True)
class SearchKey:
    """A setting to search: a list of values, or the ends of a range."""

    path: str
    values: Values
    is_range: bool = False

    @staticmethod
    def parse(text: str) -> SearchKey:
        """Parse the argument of --search."""
        path, equals, values = text.partition("=")
        key = (
            SearchKey.from_values(path, values if RANGE in values else values.split(",")) if equals and values else None
        )
        if key is None:
            raise ConfigError(
                f"--search '{text}' is not a list or a range; write e.g. solver.lr=1e-4,1e-3 or solver.lr=1e-4..1e-2."
            )
        return key

    @staticmethod
    def from_values(path: str, values: Any) -> SearchKey | None:
        """Return the key of a list of values, or of a range as a text. None if it is neither."""
        if (section := path.partition(".")[0]) in _FIXED_SECTIONS:
            raise ConfigError(
                f"a search cannot vary {path}: trials with other values of {section} are not comparable. Search settings of "
                "the method, such as solver.lr; to compare settings of the data, make them columns of a suite."
            )
        try:
            if isinstance(values, list):
                return SearchKey(path, tuple(map(_parse_value, values))) if values else None
            low, high = (float(end) for end in str(values).split(RANGE))
        except (ValueError, yaml.YAMLError):
            return None
        return SearchKey(path, (low, high), is_range=True) if 0 < low < high else None

    def describe_edge(self, value: Any) -> str:
        """Say so if the best value is the smallest or the largest of the list: a better one may lie outside."""
        numbers = [v for v in self.values if isinstance(v, int | float)]
        if self.is_range or len(numbers) < len(self.values) or len(numbers) < 2 or min(numbers) < value < max(numbers):
            return ""
        return f"{self.path} {value:g} is at the edge of the grid"


SearchKeys = tuple[SearchKey, ...]


@dataclass(frozen=True)
class Trial:
    """Settings of a method, with one run per seed."""

    method: str
    values: Mapping[str, Any]
    runs: tuple[BenchmarkRun, ...]


@dataclass(frozen=True)
class Choice:
    """The best trial of a method on the development set, out of `trials`. Without a `score`, no trial has finished."""

    method: str
    trials: int
    metric: str
    score: float | None
    values: Mapping[str, Any]
    edges: tuple[str, ...] = ()
    ties: int = 0  # other trials with the same score
    failed: int = 0  # trials without a score
    problem: str = ""  # why there is no score

    @property
    def remarks(self) -> str:
        """What a reader should know about the choice, for a cell of a table."""
        trials = "1 other trial has" if self.ties == 1 else f"{self.ties} other trials have"
        ties = (f"{trials} the same score",) if self.ties else ()
        failed = (f"{count_of(self.failed, 'trial')} failed",) if self.failed else ()
        return "; ".join((*failed, *ties, *self.edges)) or "–"


@dataclass(frozen=True)
class Search:
    """The trials of all methods. `methods` maps each name to the keys that it searches."""

    recipe: str
    changes: Mapping[str, Any]
    methods: Mapping[str, SearchKeys]
    trials: int | None = None
    seeds: int = 1
    seed: int = 0

    @property
    def budget(self) -> int:
        """The number of trials of every method."""
        with label_config_errors("--trials"):
            return count_trials(list(self.methods.values()), self.trials)

    def settings(self, method: str) -> list[dict[str, Any]]:
        """Return the values of each trial of a method. The same seed gives the same trials."""
        return draw_trials(self.methods[method], self.budget, self.seed)

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
            {"algorithm": {"type": method}, "baselines": {}, "evaluation": {"test": False}},
            nest_settings(values),
        ):
            changes = merge_settings(changes, change)
        label = ", ".join([method, *(f"{path}={value}" for path, value in values.items())])
        trial = replace(build_recipe(self.recipe, changes), recipe=f"{config.recipe}/{label}")
        return BenchmarkRun(name=run_name(trial), config=trial)


def count_trials(methods: Sequence[SearchKeys], requested: int | None) -> int:
    """Return the number of trials of every method: what is requested, but no more than the smallest grid has."""
    grids = [math.prod(len(key.values) for key in keys) for keys in methods if not _has_range(keys)]
    if requested is None and len(grids) < len(methods):
        raise ConfigError("the number of trials is missing; a search over a range needs one.")
    budget = min([*grids, *([requested] if requested is not None else [])])
    if budget < 1:
        raise ConfigError(f"the number of trials is {requested}; expected at least 1.")
    return budget


def draw_trials(keys: SearchKeys, budget: int, seed: int = 0) -> list[dict[str, Any]]:
    """Draw the values of `budget` trials: all combinations, some of them, or points in ranges."""
    rng = np.random.default_rng([seed, *(ord(c) for c in "".join(key.path for key in keys))])
    if _has_range(keys):
        chosen = [tuple(_draw(key, rng) for key in keys) for _ in range(budget)]
    else:
        chosen = _draw_from_grid(keys, budget, rng)
    return [dict(zip((key.path for key in keys), values, strict=True)) for values in chosen]


def _draw_from_grid(keys: SearchKeys, budget: int, rng: np.random.Generator) -> list[Values]:
    """Draw combinations of a grid, in the order of the grid. Every value of a key is in about as many of them.

    Otherwise a method with an option of its own would try fewer learning rates than a method without, by chance.
    """
    grid = list(itertools.product(*(range(len(key.values)) for key in keys)))
    left = [grid[i] for i in rng.permutation(len(grid))]
    uses: Counter[tuple[int, int]] = Counter()  # of each value, by key and position
    chosen = []
    for _ in range(budget):
        combination = min(left, key=lambda c: sum(uses[place] for place in enumerate(c)))
        left.remove(combination)
        uses.update(enumerate(combination))
        chosen.append(combination)
    return [tuple(key.values[i] for key, i in zip(keys, c, strict=True)) for c in sorted(chosen)]


def nest_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn `solver.lr` → value into nested settings of a recipe."""
    return parse_overrides(f"{path}={value}" for path, value in values.items())


def choose(search: Search, trials: Sequence[Trial], store: RunStore) -> list[Choice]:
    """Return the best settings of every method."""
    choices = []
    for method, keys in search.methods.items():
        choice = choose_trial(method, [t for t in trials if t.method == method], keys, store)
        if choice.score is None:
            raise ConfigError(f"tune: no trial of {method} has a score on the development set: {choice.problem}")
        choices.append(choice)
    return choices


def choose_trial(
    method: str, trials: Sequence[Trial], keys: SearchKeys, store: RunStore, metric: MetricSpec = DEV_BEST
) -> Choice:
    """Return the best of the trials. Failed trials are worse than all others."""
    scored = [(_mean_dev_score(trial, store, metric), trial) for trial in trials]
    finished = [(score, trial) for score, trial in scored if score is not None]
    if not finished:
        reason = next(filter(None, (store.failure(run.name) for t in trials for run in t.runs)), "not run")
        return Choice(method, len(trials), metric.metric or "", None, dict(trials[0].values), problem=reason)
    name = finished[0][0][0]
    sign = -1 if is_lower_better(name) else 1
    (_, score), best = max(finished, key=lambda pair: sign * pair[0][1])
    edges = tuple(edge for key in keys if (edge := key.describe_edge(best.values[key.path])))
    ties = sum(pair[0][1] == score for pair in finished) - 1
    return Choice(
        method=method,
        trials=len(trials),
        metric=name,
        score=score,
        values=dict(best.values),
        edges=edges,
        ties=ties,
        failed=len(trials) - len(finished),
    )


def _mean_dev_score(trial: Trial, store: RunStore, metric: MetricSpec) -> tuple[str, float] | None:
    """Return the name of the metric and its mean over seeds; None if a run failed."""
    scores = [read_dev_score(store.summary(run.name), store.run_folder(run.name), metric) for run in trial.runs]
    finished = [score for score in scores if score is not None and math.isfinite(score[1])]
    if len(finished) < len(scores):
        return None
    return finished[0][0], fmean(score for _, score in finished)


def read_dev_score(summary: dict[str, Any] | None, folder: Path, metric: MetricSpec) -> tuple[str, float] | None:
    """Read a metric on the development set, and its name.

    `dev-best` is the best round, by the metric that picks it. Numbers of clients (`local`, `worst`, `spread`, `shared`) are
    chosen by the mean over clients, each on the rows that were held out from it. All others are after the last round.
    """
    if summary is None:
        return None
    if metric.kind == "dev-best":
        best = summary.get("dev_best")
        return (best["by"], best["dev"][best["by"]]) if best and best["by"] in best["dev"] else None
    name = str(summary["primary_metric"]) if metric.metric == PRIMARY_METRIC else metric.metric
    who = "clients" if metric.kind in CLIENT_KINDS else "server"
    values = [r["value"] for r in read_metrics(folder).rows if (r["who"], r["split"], r["name"]) == (who, "dev", name)]
    return (name or "", float(values[-1])) if values else None


def render_choices(choices: Sequence[Choice]) -> str:
    """Render the best settings of every method as a Markdown table, with the budget, ties and edges."""
    lines = [
        f"| method | trials | {choices[0].metric} on dev | best settings | remarks |",
        "| --- | ---: | ---: | --- | --- |",
    ]
    for choice in choices:
        values = ", ".join(f"`{path}={value}`" for path, value in choice.values.items())
        score = use_minus_signs(f"{choice.score:.4f}")
        lines.append(f"| {choice.method} | {choice.trials} | {score} | {values} | {choice.remarks} |")
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
            "ties": c.ties,
            "failed": c.failed,
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
    if missing := [name for name, method_keys in keys.items() if not method_keys]:
        raise ConfigError(f"--search is missing for {', '.join(missing)}; write e.g. --search solver.lr=1e-4,1e-3.")
    return {name: tuple(method_keys) for name, method_keys in keys.items()}


def _parse_value(value: Any) -> Any:
    """Read 5e-5 as a number, which YAML reads as a text."""
    parsed = parse_yaml(value) if isinstance(value, str) else value
    try:
        return float(parsed) if isinstance(parsed, str) else parsed
    except ValueError:
        return parsed


def _has_range(keys: Sequence[SearchKey]) -> bool:
    return any(key.is_range for key in keys)


def _draw(key: SearchKey, rng: np.random.Generator) -> Any:
    if not key.is_range:
        return key.values[int(rng.integers(len(key.values)))]
    low, high = (math.log(end) for end in key.values)
    return float(f"{math.exp(rng.uniform(low, high)):.3g}")
