"""`motet compare`: what differs between two runs in settings and results, and whether the difference is significant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motet.core.errors import ConfigError
from motet.experiment.commands.environment import describe_software
from motet.experiment.commands.run_folder import is_started, load_config, load_summary, resume_command
from motet.experiment.commands.run_records import is_personal
from motet.experiment.commands.unequal_settings import join_settings, list_unequal_settings
from motet.experiment.loop.example_scores import read_example_scores
from motet.experiment.loop.metrics_log import is_client_row, read_metrics
from motet.experiment.loop.scores import mean_metrics
from motet.experiment.recipe.flat_settings import diff_settings, flatten_settings
from motet.report.client_bootstrap import client_spread, compare_clients, worst_tenth
from motet.report.number_text import count_of, format_p_value, use_minus_signs
from motet.report.paired_scores import PairedRuns, RunScores, SharedUnits, compare_methods, score_run
from motet.report.significance import MIN_EXAMPLES, MIN_SEEDS, Comparison
from motet.tasks.metric_statistics import StatisticsMetric, metric_from_statistics

# The runs of one method may differ in these.
_SETTINGS_OF_A_RUN = ("seed", "device", "transport", "checkpoint", "track")
_SPREAD_NAMES = {"worst_decile": "worst 10 %"}  # as in the table of a run
OwnerScores = Mapping[str, np.ndarray]  # rows of examples by the owner of their test set


@dataclass(frozen=True)
class RunComparison:
    """Settings that differ, with both values; results of both runs; and a sentence on significance."""

    settings: list[tuple[str, str, str]]
    results: list[tuple[str, float | None, float | None]]
    verdict: str


class _Runs(NamedTuple):
    """The runs of one method, by seed."""

    folders: list[Path]
    summaries: list[dict[str, Any]]


def compare_runs(first: Path, second: Path) -> RunComparison:
    """Compare two runs, or two folders that each hold the runs of one method with several seeds."""
    runs = _find_runs(first), _find_runs(second)
    _check_seeds((first, second), runs)
    _check_metrics((first, second), runs)
    settings = [flatten_settings(load_config(each.folders[0]).to_dict()) for each in runs]
    results = [_mean_results(each.summaries) for each in runs]
    names = dict.fromkeys([*results[0], *results[1]])
    caveats = _find_caveats((first, second), runs, settings)
    return RunComparison(
        settings=list(diff_settings(*settings)),
        results=[(name, results[0].get(name), results[1].get(name)) for name in names],
        verdict=" ".join([_test_significance(*runs), *_test_fairness(*runs), *caveats]),
    )


def _find_caveats(
    folders: tuple[Path, Path], runs: tuple[_Runs, _Runs], settings: Sequence[Mapping[str, str]]
) -> Iterator[str]:
    """Yield sentences on what else than the method can explain the difference."""
    if unequal := list_unequal_settings(dict(zip(map(str, folders), settings, strict=True))):
        yield f"Compare with care: they differ in more than the method: {join_settings(unequal)}."
    software = {describe_software(summary.get("versions", {})) for each in runs for summary in each.summaries}
    if len(software) > 1:
        yield f"Compare with care: they were trained with different versions: {' and '.join(sorted(software))}."


def _check_seeds(folders: tuple[Path, Path], runs: tuple[_Runs, _Runs]) -> None:
    seeds = [[summary["seed"] for summary in each.summaries] for each in runs]
    if len(seeds[0]) != len(seeds[1]) or (len(seeds[0]) > 1 and seeds[0] != seeds[1]):
        raise ConfigError(
            f"'{folders[0]}' has runs with the seeds {seeds[0]} and '{folders[1]}' with {seeds[1]}; expected the same "
            "seeds. Train the missing ones."
        )


def _check_metrics(folders: tuple[Path, Path], runs: tuple[_Runs, _Runs]) -> None:
    metrics = [each.summaries[0]["primary_metric"] for each in runs]
    if metrics[0] != metrics[1]:
        raise ConfigError(
            f"'{folders[0]}' is measured by {metrics[0]} and '{folders[1]}' by {metrics[1]}; expected runs with the same "
            "primary metric. Compare runs of one task."
        )


def _find_runs(folder: Path) -> _Runs:
    """Return the run in a folder, or the runs in its subfolders, in the order of their seeds."""
    is_run = is_started(folder) or not folder.is_dir()
    folders = [folder] if is_run else sorted(path.parent for path in folder.glob("*/config.yaml"))
    if not folders:
        raise ConfigError(f"'{folder}' has no runs; expected a run, or a folder with one run per seed.")
    summaries = [_load_finished_summary(path) for path in folders]
    if len({s["seed"] for s in summaries}) < len(summaries):
        raise ConfigError(
            f"'{folder}' has several runs with one seed: {', '.join(f.name for f in folders)}. Expected the runs of one "
            "method, each with its own seed."
        )
    _check_one_method(folder, folders)
    pairs = sorted(zip(folders, summaries, strict=True), key=lambda pair: pair[1]["seed"])
    return _Runs([path for path, _ in pairs], [summary for _, summary in pairs])


def _check_one_method(folder: Path, folders: Sequence[Path]) -> None:
    """Raise an error if runs differ in more than their seeds and where they were trained."""
    first, *others = (flatten_settings(load_config(path).to_dict()) for path in folders)
    keys = dict.fromkeys(key for other in others for key, _, _ in diff_settings(first, other))
    if different := [key for key in keys if key.partition(".")[0] not in _SETTINGS_OF_A_RUN]:
        raise ConfigError(
            f"'{folder}' has runs with other values of {', '.join(different)}; expected the runs of one method, which "
            "differ in their seeds. Move the others to another folder."
        )


def _mean_results(summaries: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the mean over runs of each number that all of them have."""
    return mean_metrics(_collect_results(summary) for summary in summaries)


def _load_finished_summary(folder: Path) -> dict[str, Any]:
    load_config(folder)  # raises an error if there is no run
    summary = load_summary(folder)
    if summary is None:
        raise ConfigError(f"'{folder}' is not finished; expected a finished run. Finish it: {resume_command(folder)}")
    return summary


def _collect_results(summary: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a summary by name."""
    primary_metric = summary["primary_metric"]
    results = dict(summary["final"])
    if primary_metric in summary["best"]:
        results[f"best {primary_metric}, on test"] = summary["best"][primary_metric]
    best_dev_round = summary.get("dev_best") or {}
    if primary_metric in best_dev_round.get("test", {}):
        results[f"dev-best {primary_metric}"] = best_dev_round["test"][primary_metric]
    local = {f"clients: {_SPREAD_NAMES.get(name, name)}": value for name, value in summary["clients_final"].items()}
    results = {**local, **results} if is_personal(summary) else {**results, **local}
    results["MB up"] = summary["bytes"]["payload_up"] / 1e6
    results["MB down"] = summary["bytes"]["payload_down"] / 1e6
    results["seconds"] = summary["seconds"]
    return results


def _test_significance(first: _Runs, second: _Runs) -> str:
    """Compare the runs example by example and seed by seed, if both were evaluated on the same examples."""
    scores = _load_all_scores(first, second)
    if isinstance(scores, str):
        return scores
    test = compare_methods(scores.second, scores.first, scores.shared)
    if test is None:
        return "The test set has a single example, so the difference cannot be tested."
    return _describe_test(test, first.summaries[0]["primary_metric"], scores.first[0])


class _PairedScores(NamedTuple):
    first: list[RunScores]
    second: list[RunScores]
    shared: SharedUnits


def load_paired_runs(first: Path, second: Path) -> PairedRuns:
    """Load the differences second − first of two runs, or of two folders of runs, in percent."""
    runs = _find_runs(first), _find_runs(second)
    _check_seeds((first, second), runs)
    scores = _load_all_scores(*runs, scale=100.0)
    if isinstance(scores, str):
        raise ConfigError(scores)
    return PairedRuns.subtract(scores.second, scores.first, scores.shared)


def _load_all_scores(first: _Runs, second: _Runs, scale: float = 1.0) -> _PairedScores | str:
    """Load the scores of all examples, or say why the runs cannot be compared by them."""
    summaries = [*first.summaries, *second.summaries]
    metrics = {summary.get("primary_metric") for summary in summaries}
    items = [[summary.get("items") for summary in runs.summaries] for runs in (first, second)]
    if len(metrics) != 1 or items[0] != items[1] or None in items[0]:
        return (
            "The runs have different test examples or primary metrics, so they cannot be compared example by example."
        )
    metric = str(metrics.pop())
    is_local = any(map(is_personal, summaries))  # a personal method is deployed on the texts of each client
    pairs = [
        (read_example_scores(a), read_example_scores(b)) for a, b in zip(first.folders, second.folders, strict=True)
    ]
    owners = [_find_common_owners(pair, is_local) for pair in pairs]
    if not all(owners):
        return "Per-example scores of both runs are needed; set evaluation.save_example_scores=true."
    partitions = _partition_digests(first)
    if partitions != _partition_digests(second) and any(any(names) for names in owners):
        return (
            "The runs divide the texts over clients in different ways, so their clients have other test examples and "
            "cannot be compared. Use the same partition and development set."
        )
    scores = [_pair_scores(pair, names, metric, scale) for pair, names in zip(pairs, owners, strict=True)]
    shared = SharedUnits(examples=len(set(items[0])) == 1, clients=is_local and len(set(partitions)) == 1)
    return _PairedScores([a for a, _ in scores], [b for _, b in scores], shared)


def _test_fairness(first: _Runs, second: _Runs) -> Iterator[str]:
    """Yield sentences on the worst tenth of the clients and on their spread, if both methods have the same clients."""
    metric = first.summaries[0]["primary_metric"]
    scores = [[_client_scores(folder, metric) for folder in runs.folders] for runs in (first, second)]
    partitions = _partition_digests(first)
    if partitions != _partition_digests(second) or [list(run) for run in scores[0]] != [list(run) for run in scores[1]]:
        return
    before, after = ([np.array(list(run.values())) for run in runs] for runs in scores)
    for name, statistic in (("Worst tenth of the clients", worst_tenth), ("Deviation between clients", client_spread)):
        test = compare_clients(after, before, statistic, shares_clients=len(set(partitions)) == 1)
        if test is not None:
            yield f"{name}: {_describe_interval(test)}."


def _partition_digests(runs: _Runs) -> list[str | None]:
    """Return a digest of each run's clients. Clients of different divisions have the same names, and other texts."""
    return [(summary.get("partition") or {}).get("digest") for summary in runs.summaries]


def _client_scores(folder: Path, metric: str) -> dict[str, float]:
    """Return the score of each client's model on its own test set."""
    rows = read_metrics(folder).rows
    return {r["who"]: r["value"] for r in rows if is_client_row(r) and (r["split"], r["name"]) == ("test", metric)}


def _describe_test(test: Comparison, metric: str, example: RunScores) -> str:
    count = 0 if example.examples is None else len(example.examples)
    where = "clients' own test examples" if example.has_clients else "the same examples"
    conclusion = "significant" if test.is_significant else "not significant"
    subject = f"This is about the methods: the test varies {' and '.join(test.varied)}."
    if not test.is_about_methods:
        subject = (
            "This is about these trained models on new examples, not about the methods: other seeds give other models. "
            f"For the methods, give two folders with the runs of at least {MIN_SEEDS} seeds each."
        )
    rough = f" With fewer than {MIN_EXAMPLES} examples, p is rough." if 0 < count < MIN_EXAMPLES else ""
    return (
        f"Second minus first, {metric} on {where}: {_describe_interval(test)}, {format_p_value(test.p, 4)} over "
        f"{count_of(count, 'example')}: {conclusion}.{rough} {subject}"
    )


def _describe_interval(test: Comparison) -> str:
    return use_minus_signs(f"{test.difference:+.4f} (95 % interval {test.low:+.4f} to {test.high:+.4f})")


def _find_common_owners(scores: tuple[OwnerScores, OwnerScores], is_local: bool) -> list[str]:
    """Return whose test sets both runs have: those of clients, or "", which is the global one."""
    sizes = [{owner: len(rows) for owner, rows in run.items() if len(rows)} for run in scores]
    common = [owner for owner, size in sizes[0].items() if sizes[1].get(owner) == size]
    return [owner for owner in common if owner] if is_local or "" not in common else [""]


def _pair_scores(
    scores: tuple[OwnerScores, OwnerScores], owners: Sequence[str], metric: str, scale: float
) -> tuple[RunScores, RunScores]:
    """Return the scores of two runs on the test sets of these owners."""
    statistic = _find_statistics_metric(metric, [run[owner] for run in scores for owner in owners])
    columns = slice(1, None) if statistic else slice(0, 1)
    ids = np.concatenate([np.full(len(scores[0][owner]), i) for i, owner in enumerate(owners)])

    def score(run: OwnerScores) -> RunScores:
        rows = [run[owner][:, columns].astype(np.float64) for owner in owners]
        numbers = [float(statistic(r.mean(0), len(r)) if statistic else r.mean()) for r in rows]
        return score_run(scale * float(np.mean(numbers)), np.concatenate(rows), ids, statistic, scale)

    return score(scores[0]), score(scores[1])


def _find_statistics_metric(metric: str, scores: Sequence[np.ndarray]) -> StatisticsMetric | None:
    """Return how the metric follows from sufficient statistics; None if it is the mean of the scores."""
    widths = {rows.shape[1] - 1 for rows in scores}
    if len(widths) != 1:
        return None
    compute = metric_from_statistics(metric, widths.pop())
    means = [(rows.mean(0, dtype=np.float64), len(rows)) for rows in scores]
    if compute is None or all(np.isclose(compute(mean[1:], count), mean[0], atol=1e-6) for mean, count in means):
        return None
    return compute
