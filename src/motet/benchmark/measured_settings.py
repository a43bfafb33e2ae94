"""What a benchmark has measured, setting by setting: the corpus and its division, and the numbers of every method.

`advice.json` in the folder of a benchmark holds them. `motet advise` compares them with another corpus and partition.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from statistics import fmean
from typing import Any

from motet.benchmark.cells import Cell
from motet.benchmark.result_tables import ResultTable, heading_metrics
from motet.benchmark.run_store import RunStore
from motet.benchmark.suite import Suite
from motet.benchmark.table_entry import TableEntry
from motet.benchmark.table_metrics import TableMetric
from motet.core.errors import ConfigError
from motet.experiment.recipe.config_parsing import instantiate
from motet.missing_paths import describe_missing
from motet.report.significance import MIN_SEEDS

ADVICE_FILE = "advice.json"
ADVICE_VERSION = 1
SHIPPED_RESULTS = "methods-results.json"  # of `motet bench methods`, in motet.suites


@dataclass(frozen=True)
class SettingFeatures:
    """A corpus and its division over clients, in numbers. Measures are those of a partition (see `partitions.measures`)."""

    task: str
    dataset: str
    clients: int
    texts_per_client: float
    measures: Mapping[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, float]:
        """Numbers of clients, of texts and of labels. A client has as many labels as an even mix of the same entropy."""
        counts = {"clients": float(self.clients), "texts per client": self.texts_per_client}
        if "label_entropy" in self.measures:
            counts["labels per client"] = math.exp(self.measures["label_entropy"])
        return counts

    @staticmethod
    def from_summaries(summaries: Sequence[Mapping[str, Any]]) -> SettingFeatures | None:
        """Return the means over runs; None without a run that has the numbers."""
        known = [s for s in summaries if "train_examples" in s and "measures" in s.get("partition", {})]
        if not known:
            return None
        measures = [summary["partition"]["measures"] for summary in known]
        names = [name for name in measures[0] if all(name in m for m in measures)]
        return SettingFeatures(
            task=known[0]["task"],
            dataset=known[0]["dataset"],
            clients=known[0]["clients"],
            texts_per_client=fmean(s["train_examples"] / max(1, s["clients"]) for s in known),
            measures={name: round(fmean(m[name] for m in measures), 4) for name in names},
        )


@dataclass(frozen=True)
class MethodNumbers:
    """The numbers of a row in a setting: its score by seed, and how it compares with the best method."""

    scores: tuple[float, ...]
    is_best: bool = False
    is_tied: bool = False
    difference: tuple[float, float, float] | None = None  # to the best: difference, and the ends of its 95 % interval
    p_value: float | None = None
    worst: float | None = None
    megabytes: float | None = None

    @property
    def mean(self) -> float:
        return fmean(self.scores)


@dataclass(frozen=True)
class MeasuredSetting:
    """A column of a table: what was measured, and the numbers of every method.

    `bounds` are rows without federation, such as isolated clients. They are not ranked, but compared with the best method.
    """

    name: str
    features: SettingFeatures
    score: str
    methods: Mapping[str, MethodNumbers]
    software: str = ""
    bounds: Mapping[str, MethodNumbers] = field(default_factory=dict)

    @property
    def column(self) -> str:
        return self.name.partition(", ")[2]

    @property
    def seeds(self) -> int:
        return min(len(numbers.scores) for numbers in self.methods.values())

    @property
    def best(self) -> list[str] | None:
        """The best method and those not significantly worse; None with too few seeds to say."""
        names = [name for name, numbers in self.methods.items() if numbers.is_best or numbers.is_tied]
        return names if self.seeds >= MIN_SEEDS and names else None


def best_in_all(settings: Sequence[MeasuredSetting]) -> list[str] | None:
    """Return the methods that are best, or not significantly worse, in all settings. None if no setting can say."""
    best = [setting.best for setting in settings if setting.best is not None]
    return [name for name in best[0] if all(name in names for names in best)] if best else None


def collect_settings(
    suite: Suite, tables: Sequence[ResultTable], cells: Sequence[Cell], store: RunStore
) -> Iterator[MeasuredSetting]:
    """Yield the columns of all tables that show a score, without rows that lack seeds: those are not compared."""
    for table in tables:
        spec = suite.table(table.name)
        metrics = heading_metrics(spec)
        for column in dict.fromkeys(cell.column for cell in cells if cell.table == table.name):
            runs = [c.run.name for c in cells if (c.table, c.column) == (table.name, column) and c.row in table.rows]
            summaries = [summary for run in runs if (summary := store.summary(run)) is not None]
            features = SettingFeatures.from_summaries(summaries)
            headings = {metrics[heading]: heading for heading in spec.metrics(column)}
            score = next((metric for metric in headings if metric.is_score), None)
            if features is None or score is None:
                continue
            methods, bounds = (_read_rows(table, rows, headings, score) for rows in (table.rows, table.bounds))
            seeds = max((len(numbers.scores) for numbers in methods.values()), default=0)
            methods, bounds = ({r: n for r, n in rows.items() if len(n.scores) == seeds} for rows in (methods, bounds))
            if methods:
                yield MeasuredSetting(
                    name=f"{table.name}, {column}",
                    features=features,
                    score=score.shows,
                    methods=methods,
                    software=table.software,
                    bounds=bounds,
                )


def _read_rows(
    table: ResultTable, rows: Sequence[str], headings: Mapping[TableMetric, str], score: TableMetric
) -> dict[str, MethodNumbers]:
    return {row: numbers for row in rows if (numbers := _read_numbers(table, row, headings, score))}


def _read_numbers(
    table: ResultTable, row: str, headings: Mapping[TableMetric, str], score: TableMetric
) -> MethodNumbers | None:
    entry = table.entries[row][headings[score]]
    if not entry.values:
        return None
    means = {metric.spec.kind: table.entries[row][heading].mean for metric, heading in headings.items()}
    return MethodNumbers(
        scores=entry.values,
        is_best=entry.is_best,
        is_tied=entry.is_tied,
        difference=_interval(entry),
        p_value=entry.p_value,
        worst=means.get("worst"),
        megabytes=means.get("MB"),
    )


def _interval(entry: TableEntry) -> tuple[float, float, float] | None:
    comparison = entry.comparison
    return None if comparison is None else (comparison.difference, comparison.low, comparison.high)


def settings_to_dict(settings: Sequence[MeasuredSetting]) -> dict[str, Any]:
    return {"version": ADVICE_VERSION, "settings": [asdict(setting) for setting in settings]}


def load_settings(source: Path | None) -> list[MeasuredSetting]:
    """Load the settings of a benchmark folder or of a file; without one, those that Motet ships."""
    if source is None:
        shipped = resources.files("motet.suites").joinpath(SHIPPED_RESULTS)
        if not shipped.is_file():
            raise ConfigError(
                "this version of Motet ships no results. Run: motet bench methods, and pass its folder with --results."
            )
        text = shipped.read_text("utf-8")
    else:
        path = source / ADVICE_FILE if source.is_dir() else source
        if not path.exists():
            raise ConfigError(
                f"--results: {describe_missing(path)} Expected the folder of a finished motet bench, or its {ADVICE_FILE}."
            )
        text = path.read_text("utf-8")
    try:
        content = json.loads(text)
        return [_parse_setting(entry) for entry in content["settings"]]
    except (ValueError, KeyError, TypeError, ConfigError) as error:
        raise ConfigError(
            f"--results: '{source}' has no settings of a benchmark ({error}). Run motet bench anew."
        ) from None


def _parse_setting(entry: Mapping[str, Any]) -> MeasuredSetting:
    setting = instantiate(MeasuredSetting, entry, "settings")
    rows = (*setting.methods.values(), *setting.bounds.values())
    if not setting.methods or not all(numbers.scores for numbers in rows):
        raise ConfigError("a setting without numbers")
    return setting


COUNT_FACTOR = 2.0  # two counts are near each other if the larger is at most twice the smaller
MEASURE_TOLERANCE = 0.15  # two measures, which lie between 0 and 1, are near each other within this


def feature_distances(first: SettingFeatures, second: SettingFeatures) -> dict[str, float]:
    """Return by how much two settings differ in each feature. 1 is the limit of near.

    Labels are counted because the distance between the labels of clients depends on their number: with twenty labels and
    few texts, clients with nearly the same labels are as far apart as clients with one of four.
    """
    counts = {name: (count, second.counts[name]) for name, count in first.counts.items() if name in second.counts}
    distances = {name: abs(math.log(a / b)) / math.log(COUNT_FACTOR) for name, (a, b) in counts.items()}
    for name in first.measures:
        if name in second.measures and name != "label_entropy":  # counted as labels per client
            distances[name] = abs(first.measures[name] - second.measures[name]) / MEASURE_TOLERANCE
    return distances
