"""motet advise answers from measured settings, and the overview of a suite ranks methods over its tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks import SUITE, finished_benchmark
from typer.testing import CliRunner

from motet.benchmark.advice import describe_advice, find_neighbors
from motet.benchmark.benchmark_folder import Benchmark, write_results
from motet.benchmark.fill_markdown import fill_markdown_tables
from motet.benchmark.measured_settings import (
    ADVICE_FILE,
    MeasuredSetting,
    MethodNumbers,
    SettingFeatures,
    load_settings,
)
from motet.benchmark.overview import draw_overview, rank_methods, render_overview
from motet.benchmark.suite import parse_suite
from motet.cli import app
from motet.core.errors import ConfigError
from motet.experiment.commands.partition_commands import describe_division, read_division
from motet.transport.json_files import write_json

DIVISION = ["partition.type=label", "partition.clients=3", "partition.alpha=1", "data.limit=60", "data.test_limit=20"]


def make_setting(features: SettingFeatures, name: str = "a, mild", seeds: int = 5) -> MeasuredSetting:
    worse = MethodNumbers((70.0,) * seeds, difference=(-10.0, -12.0, -8.0), p_value=0.0004, worst=40.0, megabytes=5.0)
    tied = MethodNumbers((79.0,) * seeds, is_tied=seeds >= 5, difference=(-1.0, -3.0, 1.0), p_value=0.4)
    best = MethodNumbers((80.0,) * seeds, is_best=seeds >= 5)
    return MeasuredSetting(name, features, "local accuracy", {"FedAvg": worse, "Ditto": tied, "FedRep": best})


FEATURES = SettingFeatures("classification", "mine", 20, 200.0, {"js_distance": 0.4, "size_gini": 0.1})


def test_advice_names_the_best_method_of_the_nearest_setting_and_those_that_are_not_worse() -> None:
    far = replace(FEATURES, clients=500)
    near = replace(FEATURES, clients=25, measures={"js_distance": 0.5, "size_gini": 0.1})
    text = describe_advice(FEATURES, [make_setting(far, "far, x"), make_setting(near)])
    assert "1 of 2 measured settings is near. The nearest is a, mild." in text
    assert (
        "Best mean: FedRep (5 seeds, p corrected for all pairs of methods). Not significantly different: Ditto. That is not"
        " the same as equally good" in text
    )
    assert "| FedAvg | 70.0 | −10.0 [−12.0, −8.0], p < 0.001 | 40.0 | 5.0 |" in text
    assert "The results are from one corpus (mine)." in text
    both = describe_advice(FEATURES, [make_setting(near), make_setting(near, "b, mild")])
    assert "Best or not significantly worse in all 2 near settings with 5 seeds: Ditto; FedRep." in both


def test_advice_says_whether_training_without_federation_is_as_good_as_the_best_method() -> None:
    setting = make_setting(FEATURES)
    better = MethodNumbers((90.0,) * 5, difference=(10.0, 8.0, 12.0), p_value=0.0004)
    level = MethodNumbers((80.5,) * 5, difference=(0.5, -1.0, 2.0), p_value=0.7)
    worse = MethodNumbers((60.0,) * 5, difference=(-20.0, -22.0, -18.0), p_value=0.0004)
    few = MethodNumbers((90.0,) * 5)

    def advise(bound: MethodNumbers) -> str:
        return describe_advice(FEATURES, [replace(setting, bounds={"isolated": bound})])

    assert "| *isolated* | 90.0 | 10.0 [8.0, 12.0], p < 0.001 | – | – |" in advise(better)
    assert "**isolated is better than the best federated method**, by 10.0 [8.0, 12.0], p < 0.001" in advise(better)
    assert "isolated has a higher mean than all federated methods, and is not significantly different" in advise(level)
    assert "isolated is worse than the best federated method, by 20.0 [18.0, 22.0], p < 0.001" in advise(worse)
    assert "**isolated has a higher mean than all federated methods**; this was not tested" in advise(few)
    assert "isolated" not in describe_advice(FEATURES, [setting])


def test_shipped_results_call_a_method_the_best_only_with_five_seeds() -> None:
    settings = load_settings(None)
    assert settings
    for setting in settings:
        assert setting.software, "the version that made the results"
        assert (setting.best is not None) == (setting.seeds >= 5)
        assert all(bound.difference for bound in setting.bounds.values()) and "isolated" in setting.bounds


def test_the_same_distance_between_labels_is_no_neighbor_if_clients_have_other_numbers_of_labels() -> None:
    few, many = (replace(FEATURES, measures={**FEATURES.measures, "label_entropy": e}) for e in (0.4, 2.1))
    text = describe_advice(many, [make_setting(few)])
    assert "labels per client (exponential of the mean entropy): 8.17" in text
    assert (
        "The least different is a, mild: labels per client (exponential of the mean entropy) 8.17, measured 1.49"
        in text
    )
    assert "1 of 1 measured settings is near." in describe_advice(many, [make_setting(many)])
    fewer_clients = replace(many, clients=5)
    text = describe_advice(fewer_clients, [make_setting(replace(few, clients=18)), make_setting(many, "b, mild")])
    assert "The least different is b, mild: clients 5, measured 20." in text, (
        "it is far in one feature, the other in two"
    )


def test_advice_says_when_nothing_near_was_measured_or_too_few_seeds() -> None:
    text = describe_advice(FEATURES, [make_setting(replace(FEATURES, clients=500))])
    assert "**No measured setting is near yours**, so this is no advice." in text
    assert "clients 20, measured 500" in text
    other_task = describe_advice(replace(FEATURES, task="tagging"), [make_setting(FEATURES)])
    assert "No setting with the task tagging was measured (classification were), so there is no advice." in other_task
    few = describe_advice(FEATURES, [make_setting(FEATURES, seeds=3)])
    assert "3 seeds, and 5 are needed" in few and "Best mean" not in few


@pytest.fixture
def measured(tmp_path: Path) -> Benchmark:
    """A finished benchmark whose runs say what they were measured on: the corpus and the partition of DIVISION."""
    benchmark = finished_benchmark(tmp_path)
    division = describe_division(*read_division("toy-classification", None, DIVISION))
    partition = {"measures": division["measures"]}
    facts = {"task": "classification", "dataset": "toy", "clients": 3, "train_examples": 60, "partition": partition}
    for name in benchmark.runs:
        if summary := benchmark.store.summary(name):
            write_json(benchmark.store.run_folder(name) / "summary.json", {**summary, **facts})
    suite = parse_suite("two", f"{SUITE}overview: {{label skew: [α=1, α=9]}}\n")
    return replace(benchmark, suite=suite)


def test_the_command_reads_a_corpus_a_partition_and_the_results_of_a_benchmark(measured: Benchmark) -> None:
    write_results(measured)
    words = ["advise", "toy-classification", *DIVISION, "--results", str(measured.folder)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "classification, 3 clients with 20 texts on average" in result.output
    assert "The nearest is methods, α=1." in result.output and "Best mean: FedOpt (6 seeds" in result.output
    first, second, *_ = load_settings(measured.folder)
    assert list(second.methods) == ["FedOpt"], "a seed of FedAvg is missing at α=9"
    assert first.methods["FedOpt"].scores == pytest.approx((80.0, 78.0) * 3)
    difference, low, _ = first.bounds["centralized"].difference or (0.0, 0.0, 0.0)
    assert difference == pytest.approx(16) and low > 0, "95 against 79 on average"
    assert "centralized is better than the best federated method" in result.output
    assert find_neighbors(first.features, [first])[0].distance == 0
    for data in ("movie-reviews", __file__):
        missing = CliRunner().invoke(app, ["advise", data, "--results", str(measured.folder)])
        assert missing.exit_code == 2 and f"the division of '{data}' over clients is missing" in missing.output


def test_an_overview_has_ranks_with_intervals_figures_and_a_place_in_a_document(
    measured: Benchmark, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- motet bench two overview -->\n<!-- end -->\n")
    fill_markdown_tables(page, measured, write_results(measured))
    text = page.read_text()
    assert "| FedOpt | 1.0 [1.0, 1.0] |" in text and "| FedAvg | 2.0 [2.0, 2.0] |" in text
    assert "best or not significantly worse in all of them: FedOpt" in text
    assert "| claim | methods: label skew |" in text and "| FedOpt > FedAvg | ✓ |" in text
    assert "(methods: α=1)" in text, "one seed of FedAvg is missing at α=9"
    assert (tmp_path / "figures" / "two-overview-ranks.png").exists()
    results = (measured.folder / "results.md").read_text()
    assert "### Overview" in results and "✓ shown: FedOpt > FedAvg (label skew): " in results


def test_ranks_of_few_seeds_have_no_interval_and_no_verdict() -> None:
    setting = make_setting(FEATURES, seeds=2)
    (table,) = rank_methods({"label skew": ["mild"], "other": ["absent"]}, [setting])
    assert {name: ranks.tolist() for name, ranks in table.ranks.items()} == {
        "FedAvg": [3, 3],
        "Ditto": [2, 2],
        "FedRep": [1, 1],
    }
    text = render_overview([table])
    assert (
        "these ranks are about the trained models, not about the methods" in text and "[" not in text.split("\n\n")[0]
    )


def test_ranks_leave_out_settings_with_missing_methods_unless_all_lack_some() -> None:
    complete, other = make_setting(FEATURES), make_setting(FEATURES, "b, mild")
    fewer = replace(other, methods={name: other.methods[name] for name in ("FedAvg", "FedRep")})
    (table,) = rank_methods({"label skew": ["mild"]}, [fewer, complete])
    assert table.settings == (complete,)
    (table,) = rank_methods({"label skew": ["mild"]}, [fewer])
    assert list(table.ranks) == ["FedAvg", "FedRep"]


def test_the_figure_of_scores_has_a_line_for_each_row_so_that_dots_never_overlap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    figures: dict[str, Any] = {}
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: figures.update({Path(path).stem: figure}))
    setting = make_setting(FEATURES)
    setting = replace(setting, bounds={"isolated": replace(setting.methods["Ditto"], worst=60.0, megabytes=0.0)})
    other = make_setting(FEATURES, "b, mild")
    fewer = replace(other, methods={"FedRep": replace(other.methods["FedAvg"], worst=50.0)}, bounds={})
    draw_overview(rank_methods({"label skew": ["mild"]}, [setting]), [fewer, setting], tmp_path)
    fewer_panel, panel = figures["overview-scores"].axes
    assert (panel.get_title(), panel.get_xlabel()) == ("a, mild", "local accuracy (%)")
    rows = [text.get_text() for text in fewer_panel.get_yticklabels()]
    assert rows == ["Ditto", "FedRep", "FedAvg", "isolated"], "by the mean over both settings, bounds last"
    dots = [[(line.get_ydata()[0], line.get_xdata()[0]) for line in axes.lines if line.get_marker() == "o"]
            for axes in (fewer_panel, panel)]  # fmt: skip
    assert dots[0] == [(1, 70.0)]
    assert dots[1] == [(0, 79.0), (1, 80.0), (2, 70.0), (3, 79.0)]
    assert all(text.get_text().endswith(" MB") for text in panel.texts) and len(panel.texts) == 1


def test_scores_that_differ_by_rounding_share_a_rank() -> None:
    setting = make_setting(FEATURES)
    tied = replace(setting.methods["Ditto"], scores=(80.0 + 1e-13,) * 5)
    (table,) = rank_methods({"label skew": ["mild"]}, [replace(setting, methods={**setting.methods, "Ditto": tied})])
    assert table.ranks["Ditto"].tolist() == table.ranks["FedRep"].tolist() == [1.5] * 5


@pytest.mark.parametrize("content", ["[]", "{", '{"settings": [{"name": "x"}]}'])
def test_broken_results_are_explained(content: str, tmp_path: Path) -> None:
    (tmp_path / ADVICE_FILE).write_text(content)
    with pytest.raises(ConfigError, match="has no settings of a benchmark"):
        load_settings(tmp_path)
    with pytest.raises(ConfigError, match=r"does not exist: .* Expected the folder"):
        load_settings(tmp_path / "absent")


def test_a_setting_survives_its_file(tmp_path: Path) -> None:
    from motet.benchmark.measured_settings import settings_to_dict

    setting = replace(make_setting(FEATURES), bounds={"isolated": MethodNumbers((60.0,) * 5)})
    (tmp_path / ADVICE_FILE).write_text(json.dumps(settings_to_dict([setting])))
    assert load_settings(tmp_path) == [setting]
