"""A development set: rows that no client trains on, which pick the best round."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motet.algorithms import ALGORITHMS
from motet.benchmark.table_metrics import TableMetric
from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.toy_corpora import toy_classification
from motet.experiment.build.federation import LOCAL_DEV, Federation
from motet.experiment.build.federation_builder import build_federation, federate_corpus
from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.commands.run_folder import load_config
from motet.experiment.loop.example_scores import BEST_DEV_SCORES, read_example_scores
from motet.experiment.loop.metrics_log import MetricsLog, read_metrics
from motet.experiment.loop.run_evaluator import RunEvaluator, SplitResult
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.loop.scores import find_best_dev_round, find_best_round
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig
from motet.models.model_config import ModelConfig
from motet.partitions.dev_split import hold_out_dev
from motet.partitions.partition import ClientRows, Partition
from motet.partitions.public_split import hold_out_public
from motet.transport.traffic import Traffic

SMALL_MODEL = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 24}
SETTINGS: dict[str, Any] = {
    "rounds": 3,
    "device": "cpu",
    "transport": {"workers": 0},
    "data": {"name": "toy-classification", "limit": 60, "test_limit": 24, "dev_share": 0.2},
    "model": {"name": "tiny", "max_tokens": 24, "config": SMALL_MODEL},
    "partition": {"type": "uniform", "clients": 3},
    "solver": {"lr": 0.02, "batch": 8, "epochs": 1},
}


def make_config(**changes: Any) -> RunConfig:
    settings = {**SETTINGS, **changes, "data": {**SETTINGS["data"], **changes.pop("data", {})}}
    return RunConfig.from_settings("dev", settings)


def build_partition(sizes: list[int], phases: int = 1) -> Partition:
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return Partition(
        ClientRows(np.arange(ends[-1]), ends, phases),
        ClientRows.from_lists([np.zeros(0, np.int64)] * 2),
        {},
        rounds_per_phase=2 if phases > 1 else 0,
    )


def test_dev_set_is_a_share_of_the_training_rows_and_leaves_no_client_empty() -> None:
    partition = hold_out_dev(build_partition([40, 1, 0, 3, 56]), 0.2, Seed(1))
    assert partition.dev is not None
    assert len(partition.dev) == 20
    assert sorted([*partition.train.rows, *partition.dev]) == list(range(100))
    assert partition.local_dev is not None
    assert sorted(partition.local_dev.rows) == partition.dev.tolist()
    assert all(set(partition.local_dev[k]) <= set(range(*ends)) for k, ends in enumerate([(0, 40), (40, 41), (41, 41)]))
    assert (partition.train.sizes > 0).tolist() == [True, True, False, True, True]
    assert partition.train.rows.tolist() == sorted(
        partition.train.rows.tolist()
    )  # the clients' rows are still in order
    assert partition.digest not in (
        hold_out_dev(build_partition([40, 1, 0, 3, 56]), 0.2, Seed(2)).digest,
        build_partition([40, 1, 0, 3, 56]).digest,
    )


def test_small_clients_contribute_to_the_dev_set() -> None:
    partition = hold_out_dev(build_partition([2] * 50), 0.1, Seed(1))
    assert partition.dev is not None
    assert len(partition.dev) == 10
    assert set(partition.train.sizes.tolist()) == {1, 2}


def test_dev_and_public_rows_are_held_out_of_every_phase() -> None:
    before = build_partition([10, 20, 30, 40], phases=2)
    partition = hold_out_public(hold_out_dev(before, 0.1, Seed(1)), 0.25, Seed(1))
    assert partition.train.phases == 2
    assert len(partition) == 2
    assert partition.local_dev is not None and len(partition.local_dev) == 2
    for client, phase in ((0, 0), (0, 1), (1, 0), (1, 1)):
        rows = partition.train.in_phase(client, phase)
        assert len(rows)
        assert set(rows.tolist()) <= set(before.train.in_phase(client, phase).tolist())


def test_row_of_several_clients_is_held_out_from_all() -> None:
    rows = np.array([0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 6, 7])
    partition = hold_out_dev(
        Partition(ClientRows(rows, np.array([0, 6, 12])), ClientRows.from_lists([rows[:0]] * 2), {}), 0.5, Seed(3)
    )
    assert partition.dev is not None
    assert len(partition.dev)
    assert not set(partition.dev.tolist()) & set(partition.train.rows.tolist())


def test_nobody_trains_on_the_development_set_and_it_is_not_public() -> None:
    federation = build_federation(make_config(data={"public_share": 0.25}))
    dev = set(federation.server_participant.split("dev").rows.tolist())
    assert len(dev) == 12
    clients = [federation.participant(client) for client in federation.clients]
    for participant in (*clients, federation.server_participant):
        assert set(participant.split("dev").rows.tolist()) == dev
        for split in ("train", "public", "global"):
            assert not dev & set(participant.split(split).rows.tolist())
        assert participant.size == len(participant.split("train"))


def test_the_grouped_texts_of_a_language_model_have_a_development_set() -> None:
    data = {"name": "toy-lm", "dev_share": 0.1, "public_share": 0.1}
    federation = build_federation(RunConfig.from_settings("lm", {"data": data}))
    client = federation.participant(federation.clients[0])
    rows = [set(client.split(name).rows.tolist()) for name in ("train", "dev", "public", "global")]
    assert all(rows)
    assert sum(map(len, rows)) == len(set.union(*rows))
    parts = [federation.participant(name).split(LOCAL_DEV) for name in federation.clients]
    ids = parts[0].features.columns["input_ids"]
    local, dev = (sum(len(ids[row]) for row in rows) for rows in (np.concatenate([p.rows for p in parts]), rows[1]))
    assert local == dev > 0


def test_a_development_set_needs_a_client_with_two_rows() -> None:
    corpus = toy_classification(train=8, test=8, authors=2)
    with pytest.raises(ConfigError, match="no client has more than one training row"):
        federate_corpus(ModelConfig("tiny"), corpus, ComponentConfig("uniform", {"clients": 8}), Seed(1), dev_share=0.5)


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Read the metrics of a run without the time."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_metrics(folder).rows]


def resume_run(folder: Path) -> dict[str, Any]:
    return run_recipe(load_config(folder), folder, resume=True).summary


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("fedavg", {}),
        ("isolated", {}),
        ("adafd", {"data": {"public_share": 0.2}}),
        ("isolated", {"secure": {"type": "secagg", "min_clients": 2, "seeded": True}}),
        ("fedavg", {"groups": [{"clients": 1}, {"clients": 2, "name": "two"}]}),
    ],
)
def test_the_summary_has_the_best_round_on_the_development_set(
    algorithm: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    evaluation = {"every": 2, "best_round_metric": "f1_weighted"}
    folder = tmp_path / "run"
    summary = run_recipe(make_config(algorithm=algorithm, evaluation=evaluation, **settings), folder).summary
    log = read_metrics(folder)
    dev, test = dict(log.curve("f1_weighted", "dev")), dict(log.curve("accuracy", "global"))
    on_own_rows = [row for row in log.rows if (row["who"], row["split"]) == ("clients", "dev")]
    local = [row["round"] for row in on_own_rows if row["name"] == "accuracy"]
    assert local == ([2, 3] if algorithm == "isolated" else []), "of personal models only"
    best = max(dev, key=lambda round: (dev[round], -round))
    assert sorted(dev) == sorted(test) == [2, 3]
    assert summary["dev_best"]["round"] == best
    assert summary["dev_best"]["dev"]["f1_weighted"] == dev[best]
    assert summary["dev_best"]["test"]["accuracy"] == test[best]
    assert TableMetric("dev-best accuracy").read(summary, folder) == pytest.approx(100 * test[best])


@pytest.mark.parametrize(("metric", "best"), [("accuracy", 1), ("f1_weighted", 3), ("loss", 2)])
def test_any_metric_can_pick_the_best_round_and_a_lower_loss_is_better(metric: str, best: int) -> None:
    log, rounds = MetricsLog(None), {1: (0.5, 0.1, 0.9), 2: (0.4, 0.2, 0.3), 3: (0.5, 0.3, 0.8)}
    for round, values in rounds.items():
        scores = dict(zip(("accuracy", "f1_weighted", "loss"), values, strict=True))
        for split in ("dev", "global"):
            log.add(round, "server", split, scores, Traffic())
    best_round = find_best_dev_round(log, metric)
    assert best_round is not None
    assert (best_round.round, best_round.test["loss"]) == (best, rounds[best][2])


def test_a_metric_that_the_task_does_not_have_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"evaluation.best_round_metric is 'f1_wieghted'.*Did you mean 'f1_weighted'"):
        run_recipe(make_config(evaluation={"best_round_metric": "f1_wieghted"}), tmp_path / "run")


def test_example_scores_of_the_best_round_are_kept_for_significance_tests(tmp_path: Path) -> None:
    solver = {"lr": 0.5, "batch": 8, "optimizer": "sgd"}
    summary = run_recipe(make_config(solver=solver), tmp_path / "run").summary
    scores = {"dev-best accuracy": summary["dev_best"]["test"]["accuracy"], "accuracy": summary["final"]["accuracy"]}
    for metric, score in scores.items():
        examples, _ = TableMetric(metric).read_examples(tmp_path / "run", 100 * score)
        assert examples is not None
        assert examples.rows.mean() == pytest.approx(score)


def test_without_a_development_set_there_is_no_best_dev_round(tmp_path: Path) -> None:
    summary = run_recipe(make_config(rounds=1, data={"dev_share": 0.0}), tmp_path / "run").summary
    assert summary["dev_best"] is None
    assert TableMetric("dev-best accuracy").read(summary, tmp_path / "run") is None
    assert not (tmp_path / "run" / BEST_DEV_SCORES).exists()


@pytest.mark.parametrize("algorithm", ["fedavg", "isolated", "adafd"])
@pytest.mark.parametrize("interrupted_split", ["dev", "global"])
def test_a_run_interrupted_while_it_evaluates_resumes_with_the_same_metrics(
    algorithm: str, interrupted_split: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(
        algorithm=algorithm,
        data={"public_share": 0.2},
        evaluation={"by_client": True},
        groups=[{"clients": 1}, {"clients": 2}],
    )
    expected = run_recipe(config, tmp_path / "whole").summary
    evaluate_split = RunEvaluator.evaluate_split

    def interrupt(self: RunEvaluator, split: str, per_example: bool = False) -> SplitResult:
        if self.engine.progress.rounds == 2 and split == interrupted_split:
            raise KeyboardInterrupt
        return evaluate_split(self, split, per_example)

    with monkeypatch.context() as patch:
        patch.setattr(RunEvaluator, "evaluate_split", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_recipe(config, tmp_path / "interrupted")
    summary = resume_run(tmp_path / "interrupted")
    assert read_rows(tmp_path / "interrupted") == read_rows(tmp_path / "whole")
    assert summary["dev_best"] == expected["dev_best"]
    first, second = (read_example_scores(tmp_path / name, BEST_DEV_SCORES) for name in ("interrupted", "whole"))
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[owner], second[owner]) for owner in first)


def test_notes_of_an_interrupted_round_are_not_logged_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AdaFD notes its weights in the middle of a round. The round is run, and noted, again."""
    config = make_config(algorithm="adafd", data={"public_share": 0.2})
    run_recipe(config, tmp_path / "whole")
    log_note = FederatedRun._log_note

    def interrupt(self: FederatedRun, note: Any) -> None:
        log_note(self, note)
        if self.rounds == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FederatedRun, "_log_note", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_recipe(config, tmp_path / "interrupted")
    resume_run(tmp_path / "interrupted")
    assert read_rows(tmp_path / "interrupted") == read_rows(tmp_path / "whole")


def test_a_missing_summary_is_written_without_logging_anything_twice(tmp_path: Path) -> None:
    config = make_config(algorithm="adafd", data={"public_share": 0.2}, evaluation={"by_client": True})
    expected = run_recipe(config, tmp_path / "run").summary
    rows = read_rows(tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    summary = resume_run(tmp_path / "run")
    assert read_rows(tmp_path / "run") == rows
    assert json.loads(json.dumps(summary["dev_best"])) == expected["dev_best"]


def test_a_development_set_can_be_used_from_python() -> None:
    import motet

    corpus = toy_classification(train=60, test=20, authors=2)
    federation: Federation = motet.federation(corpus, model="tiny", max_tokens=24, clients=2, dev_share=0.2)
    result = motet.run(federation, ALGORITHMS["fedavg"](), rounds=2, device="cpu", workers=0)
    assert result.best_dev_round is not None
    assert result.best_dev_round.round in (1, 2)


@pytest.mark.parametrize("metric", ["loss", "eval_loss", "mean_squared_error", "val-RMSE", "perplexity"])
def test_losses_errors_and_distances_are_better_if_lower(metric: str) -> None:
    assert find_best_round({1: {metric: 0.2}, 2: {metric: 0.3}}, metric) == 1
    assert TableMetric(metric).lower_is_better
    for higher in ("neg_mean_squared_error", "accuracy", "error_free_share"):
        assert find_best_round({1: {higher: 0.2}, 2: {higher: 0.3}}, higher) == 2


@pytest.mark.parametrize(("metric", "best"), [("accuracy", 3), ("loss", 2)])
def test_a_round_with_a_score_that_is_not_finite_is_not_the_best(metric: str, best: int) -> None:
    values = {1: math.nan, 2: 0.1, 3: 0.7, 4: math.inf if metric == "loss" else -math.inf}
    assert find_best_round({round: {metric: value} for round, value in values.items()}, metric) == best
    assert find_best_round({1: {metric: math.nan}, 2: {metric: math.nan}}, metric) == 1


OVERFITTING = {"rounds": 12, "solver": {"optimizer": "sgd", "lr": 3.0, "batch": 8, "schedule": "constant", "clip": 0.0}}


def test_a_run_stops_early_and_keeps_the_best_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in any place, it stops after the same round with the same model."""
    from motet.experiment.commands.run_models import RunModels

    config = make_config(evaluation={"patience": 3, "keep": "best"}, **OVERFITTING)
    summary = run_recipe(config, tmp_path / "whole").summary
    best = summary["dev_best"]
    assert summary["rounds"] == best["round"] + 3 < 12
    assert summary["kept_round"] == best["round"]
    assert summary["final"] == best["test"]
    shorter = make_config(**{**OVERFITTING, "rounds": best["round"]})
    run_recipe(shorter, tmp_path / "shorter")
    models = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "shorter")]
    assert models[0] == models[1]
    exported, expected = (RunModels(tmp_path / name).build(None) for name in ("whole", "shorter"))
    assert exported.flat.equal(expected.flat)  # type: ignore[union-attr]

    def interrupt(self: FederatedRun) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FederatedRun, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_recipe(config, tmp_path / "interrupted")
    resumed = resume_run(tmp_path / "interrupted")
    assert read_rows(tmp_path / "interrupted") == read_rows(tmp_path / "whole")
    assert (resumed["final"], resumed["kept_round"]) == (summary["final"], summary["kept_round"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evaluation": {"patience": 2}, "data": {"dev_share": 0.0}}, "patience is 2, but there is no development set"),
        ({"evaluation": {"keep": "best"}, "data": {"dev_share": 0.0}}, "keep is best, but there is no development set"),
        ({"evaluation": {"keep": "best"}, "algorithm": "isolated"}, "trains a model for each client"),
        ({"evaluation": {"patience": 0}}, "patience is 0; expected a number of evaluations"),
    ],
)
def test_early_stopping_needs_a_development_set_and_the_best_model_a_global_one(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        run_recipe(make_config(**settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()
