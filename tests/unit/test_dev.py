"""A development set: rows that nobody trains on choose the round that is spoken of, whatever the algorithm."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motet.algorithms import ALGORITHMS
from motet.benchmark.table_metrics import TableMetric
from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.toy_corpora import toy_classification
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation, federate_corpus
from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.commands.run_folder import load_config
from motet.experiment.loop.example_scores import BEST_DEV_SCORES, read_example_scores
from motet.experiment.loop.metrics_log import MetricsLog, read_metrics
from motet.experiment.loop.run_evaluator import RunEvaluator, SplitResult
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.loop.scores import find_best_dev_round, find_best_round
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig
from motet.models.load_model import ModelConfig
from motet.partitions.dev_split import hold_out_dev
from motet.partitions.partition import ClientRows, Partition
from motet.partitions.public_split import hold_out_public
from motet.transport.mailbox import Traffic

TOP: dict[str, Any] = {
    "rounds": 3, "device": "cpu", "transport": {"workers": 0},
    "data": {"name": "toy-classification", "limit": 60, "test_limit": 24, "dev_share": 0.2},
    "model": {"name": "tiny", "max_tokens": 24, "config": {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 24}},
    "partition": {"type": "uniform", "clients": 3},
    "solver": {"lr": 0.02, "batch": 8, "epochs": 1},
}  # fmt: skip


def config(**changes: Any) -> RunConfig:
    given = {**TOP, **changes, "data": {**TOP["data"], **changes.pop("data", {})}}
    return RunConfig.from_settings("dev", given)


def build_partition(sizes: list[int], phases: int = 1) -> Partition:
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return Partition(
        ClientRows(np.arange(ends[-1]), ends, phases),
        ClientRows.from_lists([np.zeros(0, np.int64)] * 2),
        {},
        rounds_per_phase=2 if phases > 1 else 0,
    )


def test_dev_set_is_a_share_of_the_training_rows_and_leaves_no_client_empty() -> None:
    made = hold_out_dev(build_partition([40, 1, 0, 3, 56]), 0.2, Seed(1))
    assert made.dev is not None
    assert len(made.dev) == 20
    assert sorted([*made.train.rows, *made.dev]) == list(range(100))
    assert (made.train.sizes > 0).tolist() == [True, True, False, True, True]
    assert made.train.rows.tolist() == sorted(made.train.rows.tolist())  # the clients' rows are still in order
    assert made.digest not in (
        hold_out_dev(build_partition([40, 1, 0, 3, 56]), 0.2, Seed(2)).digest,
        build_partition([40, 1, 0, 3, 56]).digest,
    )


def test_small_clients_contribute_to_the_dev_set() -> None:
    made = hold_out_dev(build_partition([2] * 50), 0.1, Seed(1))
    assert made.dev is not None
    assert len(made.dev) == 10
    assert set(made.train.sizes.tolist()) == {1, 2}


def test_dev_and_public_rows_are_held_out_of_every_phase() -> None:
    before = build_partition([10, 20, 30, 40], phases=2)
    made = hold_out_public(hold_out_dev(before, 0.1, Seed(1)), 0.25, Seed(1))
    assert made.train.phases == 2
    assert len(made) == 2
    for client, phase in ((0, 0), (0, 1), (1, 0), (1, 1)):
        rows = made.train.in_phase(client, phase)
        assert len(rows)
        assert set(rows.tolist()) <= set(before.train.in_phase(client, phase).tolist())


def test_row_of_several_clients_is_held_out_from_all() -> None:
    rows = np.array([0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 6, 7])
    made = hold_out_dev(
        Partition(ClientRows(rows, np.array([0, 6, 12])), ClientRows.from_lists([rows[:0]] * 2), {}), 0.5, Seed(3)
    )
    assert made.dev is not None
    assert len(made.dev)
    assert not set(made.dev.tolist()) & set(made.train.rows.tolist())


def test_nobody_trains_on_the_development_set_and_it_is_not_public() -> None:
    made = build_federation(config(data={"public_share": 0.25}))
    dev = set(made.server_participant.split("dev").rows.tolist())
    assert len(dev) == 12
    for site in (*(made.participant(client) for client in made.clients), made.server_participant):
        assert set(site.split("dev").rows.tolist()) == dev
        for split in ("train", "public", "global"):
            assert not dev & set(site.split(split).rows.tolist())
        assert site.size == len(site.split("train"))


def test_grouped_texts_of_a_language_model_have_one_too() -> None:
    made = build_federation(
        RunConfig.from_settings("lm", {"data": {"name": "toy-lm", "dev_share": 0.1, "public_share": 0.1}})
    )
    site = made.participant(made.clients[0])
    rows = [set(site.split(name).rows.tolist()) for name in ("train", "dev", "public", "global")]
    assert all(rows)
    assert sum(map(len, rows)) == len(set.union(*rows))


def test_where_nobody_has_two_rows_nothing_can_be_put_aside() -> None:
    corpus = toy_classification(train=8, test=8, authors=2)
    with pytest.raises(ConfigError, match="no client has more than one training row"):
        federate_corpus(ModelConfig("tiny"), corpus, ComponentConfig("uniform", {"clients": 8}), Seed(1), dev_share=0.5)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """All that is written down but the clock."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_metrics(folder).rows]


def resumed(folder: Path) -> dict[str, Any]:
    return run_recipe(load_config(folder), folder, resume=True).summary


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        ("fedavg", {}), ("isolated", {}), ("adafd", {"data": {"public_share": 0.2}}),
        ("isolated", {"secure": {"type": "secagg", "minimum": 2, "seeded": True}}),
        ("fedavg", {"groups": [{"clients": 1}, {"clients": 2, "name": "two"}]}),
    ],
)  # fmt: skip
def test_whatever_the_algorithm_the_best_round_on_dev_is_told(
    algorithm: str, more: dict[str, Any], tmp_path: Path
) -> None:
    done = run_recipe(
        config(algorithm=algorithm, evaluation={"every": 2, "choose": "f1_weighted"}, **more), tmp_path / "run"
    ).summary
    rows = read_metrics(tmp_path / "run").rows
    dev = {
        r["round"]: r["value"] for r in rows if (r["who"], r["split"], r["name"]) == ("server", "dev", "f1_weighted")
    }
    test = {
        r["round"]: r["value"] for r in rows if (r["who"], r["split"], r["name"]) == ("server", "global", "accuracy")
    }
    best = max(dev, key=lambda r: (dev[r], -r))
    assert sorted(dev) == sorted(test) == [2, 3]
    assert done["dev_best"]["round"] == best
    assert done["dev_best"]["dev"]["f1_weighted"] == dev[best]
    assert done["dev_best"]["test"]["accuracy"] == test[best]
    assert TableMetric("dev-best accuracy").read(done, tmp_path / "run") == pytest.approx(100 * test[best])


@pytest.mark.parametrize(("by", "best"), [(None, 1), ("accuracy", 1), ("f1_weighted", 3), ("loss", 2)])
def test_any_metric_may_choose_and_of_losses_the_least(by: str | None, best: int) -> None:
    record, seen = MetricsLog(None), {1: (0.5, 0.1, 0.9), 2: (0.4, 0.2, 0.3), 3: (0.5, 0.3, 0.8)}
    for index, values in seen.items():
        for split in ("dev", "global"):
            record.add(
                index, "server", split, dict(zip(("accuracy", "f1_weighted", "loss"), values, strict=True)), Traffic()
            )
    chosen = find_best_dev_round(record, by or "accuracy")
    assert chosen is not None
    assert (chosen.round, chosen.test["loss"]) == (best, seen[best][2])


def test_what_the_task_does_not_measure_cannot_choose(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"evaluation.best_round_metric is 'f1_wieghted'.*Did you mean 'f1_weighted'"):
        run_recipe(config(evaluation={"choose": "f1_wieghted"}), tmp_path / "run")


def test_items_of_the_chosen_round_are_kept_for_significance(tmp_path: Path) -> None:
    done = run_recipe(config(solver={"lr": 0.5, "batch": 8, "optimizer": "sgd"}), tmp_path / "run").summary
    for shows, score in (
        ("dev-best accuracy", done["dev_best"]["test"]["accuracy"]),
        ("accuracy", done["final"]["accuracy"]),
    ):
        items, _ = TableMetric(shows).read_examples(tmp_path / "run", 100 * score)
        assert items is not None and items.rows.mean() == pytest.approx(score)


def test_without_one_nothing_is_chosen(tmp_path: Path) -> None:
    done = run_recipe(config(rounds=1, data={"dev_share": 0.0}), tmp_path / "run").summary
    assert done["dev_best"] is None
    assert TableMetric("dev-best accuracy").read(done, tmp_path / "run") is None
    assert not (tmp_path / "run" / BEST_DEV_SCORES).exists()


@pytest.mark.parametrize("algorithm", ["fedavg", "isolated", "adafd"])
@pytest.mark.parametrize("when", ["dev", "global"])
def test_broken_off_while_looking_it_goes_on_to_the_same_rows(
    algorithm: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = config(
        algorithm=algorithm,
        data={"public_share": 0.2},
        evaluation={"by_client": True},
        groups=[{"clients": 1}, {"clients": 2}],
    )
    whole = run_recipe(asked, tmp_path / "whole").summary
    evaluate_split = RunEvaluator.evaluate_split

    def interrupted(self: RunEvaluator, split: str, per_example: bool = False) -> SplitResult:
        if self.engine.progress.rounds == 2 and split == when:
            raise KeyboardInterrupt
        return evaluate_split(self, split, per_example)

    with monkeypatch.context() as patch:
        patch.setattr(RunEvaluator, "evaluate_split", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_recipe(asked, tmp_path / "cut")
    ended = resumed(tmp_path / "cut")
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")
    assert ended["dev_best"] == whole["dev_best"]
    chosen = [read_example_scores(tmp_path / name, BEST_DEV_SCORES) for name in ("cut", "whole")]
    assert [list(c) for c in chosen] == [[]] * 2 or np.array_equal(chosen[0][""], chosen[1][""])


def test_remarks_of_a_broken_round_are_not_written_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AdaFD notes its weights in the middle of a round; a round that breaks off after that is played, and noted, again."""
    asked = config(algorithm="adafd", data={"public_share": 0.2})
    run_recipe(asked, tmp_path / "whole")
    log_note = FederatedRun._log_note

    def interrupted(self: FederatedRun, note: Any) -> None:
        log_note(self, note)
        if self.rounds == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FederatedRun, "_log_note", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_recipe(asked, tmp_path / "cut")
    resumed(tmp_path / "cut")
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")


def test_a_summary_that_was_missing_is_made_without_looking_twice(tmp_path: Path) -> None:
    asked = config(algorithm="adafd", data={"public_share": 0.2}, evaluation={"by_client": True})
    before = run_recipe(asked, tmp_path / "run").summary
    rows = rows_of(tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    after = resumed(tmp_path / "run")
    assert rows_of(tmp_path / "run") == rows
    assert json.loads(json.dumps(after["dev_best"])) == before["dev_best"]


def test_from_python() -> None:
    import motet

    corpus = toy_classification(train=60, test=20, authors=2)
    over: Federation = motet.federation(corpus, model="tiny", max_tokens=24, clients=2, dev_share=0.2)
    result = motet.run(over, ALGORITHMS["fedavg"](), rounds=2, device="cpu", workers=0)
    assert result.best_dev_round is not None
    assert result.best_dev_round.round in (1, 2)
    assert torch.is_tensor(result.params.flat)


@pytest.mark.parametrize(("by", "best"), [("accuracy", 3), ("loss", 2)])
def test_a_round_that_is_no_number_is_never_the_best(by: str, best: int) -> None:
    seen = {1: math.nan, 2: 0.1, 3: 0.7, 4: math.inf if by == "loss" else -math.inf}
    assert find_best_round({r: {by: value} for r, value in seen.items()}, by) == best
    assert find_best_round({1: {by: math.nan}, 2: {by: math.nan}}, by) == 1
