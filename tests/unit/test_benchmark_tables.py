"""Result tables of a benchmark: their numbers, significance tests, and all the forms they are written in."""

from __future__ import annotations

import importlib.metadata
import json
import math
import re
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sklearn.metrics import f1_score
from tests.benchmarks import SUITE, finished_benchmark, make_summary, open_suite, write_run

import motet
from motet.benchmark.benchmark_folder import (
    Benchmark,
    BenchmarkRequest,
    collect_results,
    load_benchmark,
    render_results,
    write_results,
)
from motet.benchmark.benchmark_report_data import collect_benchmark_report
from motet.benchmark.fill_markdown import fill_markdown_tables
from motet.benchmark.render import arrange_claims, render_latex, render_legend, render_markdown
from motet.benchmark.suite import parse_suite
from motet.benchmark.table_curves import draw_learning_curves
from motet.benchmark.table_entry import TableEntry, format_number
from motet.benchmark.table_figures import draw_table
from motet.benchmark.table_metrics import TableMetric
from motet.core.errors import ConfigError, RunError
from motet.experiment.commands.environment import describe_software, package_versions
from motet.experiment.loop.example_scores import write_example_scores
from motet.experiment.loop.metrics_log import MetricsLog
from motet.experiment.recipe.run_config import RunConfig
from motet.tasks.metric_statistics import class_statistics, with_statistics
from motet.transport.json_files import write_json
from motet.transport.traffic import Traffic


@pytest.fixture
def finished(tmp_path: Path) -> Benchmark:
    return finished_benchmark(tmp_path)


@pytest.fixture
def saved_figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Figures that were saved, without writing them."""
    from matplotlib.figure import Figure

    figures: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: figures.append(figure))
    return figures


def test_tables_have_mean_std_best_method_and_significance(finished: Benchmark) -> None:
    methods, traffic = finished.tables()
    fedopt, fedavg = methods.entries["FedOpt"]["α=1"], methods.entries["FedAvg"]["α=1"]
    assert (fedopt.mean, fedopt.std) == (pytest.approx(79.0), pytest.approx(1.2**0.5))
    assert fedopt.is_best
    assert fedopt.published == 53.5
    assert fedavg.p_value is not None and fedavg.p_value < 0.05, "nine of a hundred examples, all in one direction"
    assert not fedavg.is_tied
    assert fedavg.comparison is not None and fedavg.comparison.is_about_methods
    assert fedavg.compared_with == "FedOpt"
    assert fedavg.comparison.difference == pytest.approx(-9.0)
    assert fedavg.comparison.low < -9.0 < fedavg.comparison.high < 0
    assert not methods.entries["centralized"]["α=1"].is_best, "bounds are not ranked"
    assert methods.entries["FedOpt"]["AVG"].mean == pytest.approx(79.0)
    assert methods.entries["FedAvg"]["AVG"].missing_reason == "some columns are missing"
    assert [claim.verdict for claim in methods.claims] == ["shown", "not shown"]
    assert "✓ shown: FedOpt > FedAvg: 9.0 [" in render_markdown(methods)
    assert traffic.entries["FedOpt"]["α=1 MB"].mean == 2.0
    assert traffic.entries["FedOpt"]["α=1 rounds to 0.7"].mean == 2.0
    assert traffic.lower_is_better == ("α=1 MB", "α=1 rounds to 0.7")


def test_times_are_those_of_the_virtual_clock(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    for round, accuracy in ((1, 0.5), (2, 0.8), (3, 0.6)):
        log.add(round, "server", "global", {"accuracy": accuracy}, Traffic(network_seconds=10.0 * round))

    def read(shows: str) -> float | None:
        return TableMetric(shows).read({"primary_metric": "accuracy"}, tmp_path)

    assert (read("virtual seconds to 0.7"), read("virtual seconds to 0.9")) == (20.0, None)
    assert read("accuracy after 25 virtual seconds") == pytest.approx(80.0)
    assert read("accuracy after 5 virtual seconds") is None
    assert TableMetric("accuracy after 5 virtual seconds").is_score
    with pytest.raises(ConfigError, match="has no virtual clock"):
        TableMetric("virtual seconds to 0.7").check(["accuracy"], RunConfig("toy"))


def test_costs_can_be_those_of_reaching_a_score_on_the_clients_own_test_sets(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    for round, accuracy in ((1, 0.5), (2, 0.8)):
        traffic = Traffic(payload_up=1_000_000 * round, payload_down=2_000_000 * round)
        log.add(round, "server", "global", {"accuracy": accuracy + 0.1}, traffic)
        log.add(round, "clients", "test", {"accuracy": accuracy, "f1": accuracy - 0.2, "loss": 1 - accuracy}, traffic)

    def read(shows: str) -> float | None:
        return TableMetric(shows).read({"primary_metric": "accuracy"}, tmp_path)

    assert (read("rounds to 0.6"), read("rounds to local 0.6"), read("rounds to local 0.9")) == (1.0, 2.0, None)
    assert (read("MB to local 0.6"), read("MB to local f1 0.3"), read("MB to local loss 0.5")) == (6.0, 3.0, 3.0)
    assert (read("rounds to local f1 0.6"), read("rounds to local loss 0.3")) == (2.0, 2.0)
    with pytest.raises(ConfigError, match=r"this task has the metrics accuracy, f1\. Did you mean 'f1'"):
        TableMetric("MB to f11 0.6").check(["accuracy", "f1"], RunConfig("toy"))
    with pytest.raises(ConfigError, match=r"only the last round has local scores; add evaluation: \{local: true\}"):
        TableMetric("MB to local 0.6").check(["accuracy"], RunConfig("toy"))


def test_few_seeds_give_a_statement_about_models_and_not_about_methods(tmp_path: Path) -> None:
    finished = finished_benchmark(tmp_path, seeds=2)
    tables = finished.tables()
    entries = [entry for row in tables[0].rows for entry in tables[0].entries[row].values()]
    assert not any(entry.is_best or entry.is_tied for entry in entries)
    comparison = tables[0].entries["FedAvg"]["α=1"].comparison
    assert comparison is not None and comparison.varied == ("examples",)
    legend = render_legend(tables, finished.seeds)
    assert "these trained models, not about the methods" in legend
    assert "≈: not significantly" not in legend and "best mean of the column" not in legend
    assert "| FedAvg | −9.0 [−14." in render_markdown(tables[0])


def test_rows_with_all_seeds_are_compared_beside_one_with_fewer(tmp_path: Path) -> None:
    rows = "rows: {FedAvg: {algorithm: fedavg}, FedOpt: {algorithm: fedopt}, FedProx: {algorithm: fedprox}}"
    methods = "rows: {FedAvg: {algorithm: fedavg}, FedOpt: {algorithm: fedopt}}"
    fedopt_row = "bounds: {}\n    rows: {FedOpt: {algorithm: fedopt}}"
    suite = SUITE.replace(methods, rows).replace(fedopt_row, f"bounds: {{}}\n    {rows}")
    benchmark = open_suite(tmp_path, suite, seeds=6)
    right = {"FedAvg": 70, "FedOpt": 80, "FedProx": 90, "centralized": 95}
    for cell in benchmark.cells:
        is_missing = cell.row == "FedProx" and cell.seed == 43
        if not is_missing and not benchmark.store.is_done(cell.run.name):
            correct = right[cell.row] + cell.seed % 2
            examples = (np.arange(100) < correct).astype(np.float32)[:, None]
            write_run(benchmark.store, cell.run.name, correct / 100, examples)
    scores, traffic = benchmark.tables()
    entries = {row: by_column["α=1"] for row, by_column in scores.entries.items()}
    assert entries["FedOpt"].is_best and not entries["FedProx"].is_best, "FedProx lacks a seed"
    assert all(by_column["α=1 MB"].is_best for by_column in traffic.entries.values()), "all send as many bytes"
    assert entries["FedAvg"].compared_with == "FedOpt" and entries["FedProx"].comparison is None


@pytest.mark.parametrize("seeds", [5, 3])
def test_an_interval_of_clients_says_over_what_it_varies(seeds: int, tmp_path: Path) -> None:
    suite = SUITE.replace("title: Methods", "title: Methods\n    shows: worst accuracy")
    benchmark = open_suite(tmp_path, suite, seeds=seeds)
    for run in {cell.run.name for cell in benchmark.cells if (cell.row, cell.seed) != ("FedAvg", 43)}:
        write_run(benchmark.store, run, 0.5, np.ones((1, 1), np.float32))
        log = MetricsLog(benchmark.store.run_folder(run))
        for client in range(20):
            log.add(2, f"client {client}", "test", {"accuracy": client / 20}, Traffic())
    table = benchmark.tables()[0]
    assert table.entries["FedOpt"]["α=1"].interval is not None
    assert table.entries["FedAvg"]["α=1"].is_partial and table.entries["FedAvg"]["α=1"].interval is None
    varied = "over seeds and clients" if seeds == 5 else "over clients, of these trained models"
    assert f"in brackets: 95 % interval {varied};" in render_legend([table], benchmark.seeds)


@pytest.mark.parametrize(("shows", "varied"), [("local accuracy", ("seeds",)), ("worst accuracy", None)])
def test_clients_of_another_partition_are_not_paired(
    shows: str, varied: tuple[str, ...] | None, tmp_path: Path
) -> None:
    """The bound divides the texts in another way: its third client has other texts than the third client of a method."""
    benchmark = open_suite(tmp_path, SUITE.replace("title: Methods", f"title: Methods\n    shows: {shows}"), seeds=5)
    for run in {cell.run.name: cell.run for cell in benchmark.cells}.values():
        rng = np.random.default_rng([*run.name.encode()])
        examples = {f"client {i}": (rng.random((10, 1)) < 0.5).astype(np.float32) for i in range(20)}
        write_run(benchmark.store, run.name, 0.5, np.ones((1, 1), np.float32))
        folder, log = benchmark.store.run_folder(run.name), MetricsLog(benchmark.store.run_folder(run.name))
        write_example_scores(folder, examples)
        for client, scores in examples.items():
            log.add(2, client, "test", {"accuracy": float(scores.mean())}, Traffic())
        summary = make_summary(items="test set", partition={"digest": run.config.partition.type})
        write_json(folder / "summary.json", summary)
    entries = {row: by_column["α=1"] for row, by_column in benchmark.tables()[0].entries.items()}
    assert any(c is not None and "clients" in c.varied for c in (entries[r].comparison for r in ("FedAvg", "FedOpt")))
    bound = entries["centralized"].comparison
    assert (bound and bound.varied) == varied


def test_a_number_that_is_not_finite_is_missing_and_no_result(tmp_path: Path) -> None:
    """A mean of NaN has no order, so that the best row of the column would be chosen by chance."""
    benchmark = open_suite(tmp_path, seeds=5)
    for cell in benchmark.cells:
        if cell.table == "methods" and not benchmark.store.is_done(cell.run.name):
            has_diverged = (cell.row, cell.seed) == ("FedAvg", 43)
            score = math.nan if has_diverged else {"FedAvg": 0.5, "FedOpt": 0.4}.get(cell.row, 0.9)
            write_run(benchmark.store, cell.run.name, score, np.full((50, 1), 0.5, np.float32))
    entry = benchmark.tables()[0].entries["FedAvg"]["α=1"]
    assert (entry.mean, entry.is_partial, entry.missing_reason) == (50.0, True, "the number is nan")


def test_the_average_of_columns_with_missing_seeds_is_marked(tmp_path: Path) -> None:
    finished = finished_benchmark(tmp_path)
    (cell,) = [c for c in finished.cells if (c.row, c.column, c.seed) == ("FedAvg", "α=1", 43)]
    (finished.store.run_folder(cell.run.name) / "summary.json").unlink()
    table = finished.tables()[0]
    assert "| FedAvg | 70.0 ± 0.0 † 5 of 6 | 79.0 ± 0.0 † 5 of 6 | 74.5 ± 0.0 † 5 of 6 |" in render_markdown(table)


def test_results_are_written_as_markdown_latex_and_json(finished: Benchmark) -> None:
    tables = write_results(finished)
    markdown = (finished.folder / "results.md").read_text()
    assert "| FedOpt | **79.0 ± 1.1** (53.5) |" in markdown
    assert (finished.folder / "methods.png").exists()
    assert "*centralized* | 95.0 ± 0.0" in markdown
    assert "methods/FedAvg/α=9, seed 43: out of memory" in markdown
    assert "| 79.0 ± 0.0 † 5 of 6 |" in markdown, "one of six seeds is missing, so the column is not ranked"
    assert "†: the other seeds did not finish" in markdown
    latex = (finished.folder / "results.tex").read_text()
    assert r"$\mathbf{79.0 \pm 1.1}$ (53.5)" in latex
    assert r"$\alpha$=1" in latex
    assert (
        r"{\footnotesize Mean $\pm$ standard deviation over 6 seeds; \textbf{bold}: best mean of the column;" in latex
    )
    assert r"$^{\dagger}$: the other seeds did not finish" in latex and r"\textit{italic}: bounds, not ranked." in latex
    assert not set(latex) - set(string.printable), "pdflatex needs packages for other characters"
    assert latex.count(r"\begin{table}") == latex.count(r"\end{table}") == 2
    results = json.loads((finished.folder / "results.json").read_text())
    assert results["tables"]["methods"]["cells"]["FedOpt"]["α=1"]["values"] == pytest.approx([80.0, 78.0] * 3)
    assert results["runs"] == {"all": 30, "done": 29}
    assert render_markdown(tables[0]).count("\n| ") == 9
    assert "| *centralized* | 16.0 [" in markdown and "all pairs of a bound and a method" in markdown
    assert render_latex(tables[0], "x").splitlines()[3] == r"  \label{tab:x}"


@pytest.mark.parametrize(
    ("versions", "description"),
    [
        ({"motet": "0.1.0", "commit": "0123456789abcdef"}, "Motet 0.1.0 (0123456789)"),
        ({"motet": "0.1.0", "commit": "0123456789+"}, "Motet 0.1.0 (0123456789+)"),
        ({"commit": "0123456"}, "Motet (0123456)"),
        ({"motet": "0.1.0"}, "Motet 0.1.0"),
        ({}, "an unknown version of Motet"),
    ],
)
def test_a_table_names_its_version_with_a_commit_of_one_length(versions: dict[str, str], description: str) -> None:
    assert describe_software(versions) == description


def test_the_version_is_known_without_package_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a copied source tree had only a commit, and their table was taken for one of an unknown version."""

    def no_metadata(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", no_metadata)
    assert describe_software(package_versions()).startswith(f"Motet {motet.__version__}")


def test_a_number_of_another_version_is_marked_and_runs_anew(finished: Benchmark) -> None:
    store = finished.store
    done = [name for name in finished.runs if store.is_done(name)]
    cell = next(c for c in finished.cells if (c.row, c.column, c.seed) == ("FedOpt", "α=1", 43))
    for name in done:
        versions = {"motet": "0.2", "commit": "abc" if name == cell.run.name else "def"}
        write_json(store.run_folder(name) / "summary.json", {**(store.summary(name) or {}), "versions": versions})
    table = finished.tables()[0]
    assert table.software == "Motet 0.2 (def)"
    marked = {(row, column) for row in table.rows for column, e in table.entries[row].items() if e.is_outdated}
    assert marked == {("FedOpt", "α=1")}
    assert "**79.0 ± 1.1** ‡ (53.5)" in render_markdown(table)
    assert "with Motet 0.2 (def): 29 of 30 runs" in render_results(finished, [table])
    assert "‡: made with another version" in render_legend([table], finished.seeds)
    versions = package_versions()
    for name in done[1:]:
        write_json(store.run_folder(name) / "summary.json", {**(store.summary(name) or {}), "versions": versions})
    assert store.remove_outdated(finished.runs) == done[:1]
    assert [name for name in finished.runs if store.is_done(name)] == done[1:]


def test_a_table_says_how_its_metrics_were_computed(finished: Benchmark) -> None:
    details = {"accuracy": "one tokenizer", "f1_macro": "one tokenizer", "bleu": "another"}
    for cell in finished.cells:
        if summary := finished.store.summary(cell.run.name):
            path = finished.store.run_folder(cell.run.name) / "summary.json"
            write_json(path, {**summary, "groups": [{"primary_metric": "accuracy", "metric_details": details}]})
    table = finished.tables()[0]
    assert table.to_dict()["metric_details"] == "accuracy: one tokenizer"
    assert "\n\nMetrics: accuracy: one tokenizer.\n" in render_markdown(table)


def test_a_document_is_filled_and_filled_again(finished: Benchmark, tmp_path: Path) -> None:
    document = tmp_path / "papers.md"
    document.write_text("Before.\n\n<!-- motet bench two methods -->\nstale\n<!-- end -->\n\nAfter.\n")
    tables = write_results(finished)
    assert "filled in methods" in fill_markdown_tables(document, finished, tables)
    text = document.read_text()
    assert "**79.0 ± 1.1** (53.5)" in text
    assert "stale" not in text
    assert text.startswith("Before.")
    assert text.endswith("After.\n")
    (figure,) = re.findall(r"!\[.+\]\((figures/two-methods\.png)\)", text)
    folded = re.findall(r"<summary>(.+)</summary>\n\n(?s:.+?)\n\n</details>", text)
    assert folded == ["Differences with 95 % intervals and p-values", "How the numbers were computed"]
    unfolded = re.sub(r"<details(?s:.+?)</details>", "", text)
    assert "on " in unfolded and "✓ shown: FedOpt > FedAvg" in unfolded and "![" in unfolded and "**bold**" in unfolded
    assert "| minus the best" not in unfolded and "motet bench two --seeds 6" not in unfolded
    assert (tmp_path / figure).read_bytes() == finished.figure_path("methods").read_bytes()
    fill_markdown_tables(document, finished, tables)
    assert document.read_text() == text


def test_a_document_says_that_numbers_of_a_quick_run_are_toy_numbers(finished: Benchmark, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- motet bench two methods -->\n<!-- end -->\n")
    fill_markdown_tables(page, finished, finished.tables())
    assert "Toy numbers" not in page.read_text()
    quick = replace(finished, request=replace(finished.request, quick=True))
    fill_markdown_tables(page, quick, quick.tables())
    assert "**Toy numbers of a quick test.** It shows that everything works" in page.read_text()


def test_a_long_list_of_claims_folds_those_that_are_not_shown() -> None:
    lines = ["✓ shown: a > b", "○ not shown: b > c", "✗ contradicted: c > d"]
    assert arrange_claims(lines) == "- ✓ shown: a > b\n- ○ not shown: b > c\n- ✗ contradicted: c > d"
    opened, _, folded = arrange_claims([*lines, *(f"○ not shown: {i} > d" for i in range(8))]).partition("\n\n")
    assert opened == "- ✓ shown: a > b\n- ✗ contradicted: c > d"
    assert "<summary>○ 9 of 11 claims are not shown</summary>" in folded and folded.count("\n- ○") == 9


def test_a_figure_without_runs_is_removed_from_the_document(finished: Benchmark, tmp_path: Path) -> None:
    document = tmp_path / "papers.md"
    document.write_text("<!-- motet bench two methods -->\n<!-- end -->\n")
    tables = write_results(finished)
    fill_markdown_tables(document, finished, tables)
    assert (tmp_path / "figures" / "two-methods.png").exists()
    finished.figure_path("methods").unlink()
    fill_markdown_tables(document, finished, tables)
    assert "figures/" not in document.read_text()
    assert not (tmp_path / "figures" / "two-methods.png").exists()


def test_learning_curves_have_a_panel_per_score_and_only_seeds_of_all_methods(
    finished: Benchmark, saved_figures: list[Any]
) -> None:
    cells = [cell for cell in finished.cells if cell.table == "methods"]
    spec, (table, *_) = finished.suite.table("methods"), finished.tables()
    path = finished.curves_path("methods")
    assert not draw_learning_curves(spec, table, cells, finished.store, path), "two evaluations are no curve"
    for cell in {cell.run.name: cell for cell in cells if finished.store.is_done(cell.run.name)}.values():
        log, sent = (
            MetricsLog(finished.store.run_folder(cell.run.name)),
            9_000_000 if cell.row == "FedOpt" else 3_000_000,
        )
        log.add(3, "server", "global", {"accuracy": 0.9 + 0.01 * (cell.seed % 2)}, Traffic(payload_up=sent))
    assert draw_learning_curves(spec, table, cells, finished.store, path)
    rounds, _, megabytes, _ = saved_figures[0].axes
    assert (rounds.get_ylabel(), megabytes.get_xlabel()) == ("score (%)", "MB sent, up and down")
    assert [axes.get_title() for axes in saved_figures[0].axes[:2]] == ["α=1, 6 seeds", "α=9, 5 seeds"]
    curves = {line.get_label(): line for line in rounds.lines}
    assert list(curves) == ["centralized", "FedAvg", "FedOpt"]
    assert curves["FedOpt"].get_xdata().tolist() == [1, 2, 3]
    assert curves["FedOpt"].get_ydata() == pytest.approx([39.5, 79.0, 90.5])
    assert megabytes.lines[2].get_xdata().tolist() == [1.0, 2.0, 9.0]
    for run in (finished.store.run_folder(cell.run.name) for cell in cells if finished.store.is_done(cell.run.name)):
        for round in (1, 2, 3):
            MetricsLog(run).add(round, "server", "global", {"f1": 0.5}, Traffic(payload_up=round * 1_000_000))
    both = replace(spec, shows=("accuracy", "best accuracy", "f1", "MB"))
    assert draw_learning_curves(both, table, cells, finished.store, path)
    drawn = [axes.get_ylabel() for axes in saved_figures[1].axes if axes.lines]
    expected = 4 * ["accuracy (%)", "f1 (%)"]  # two columns, by rounds and by megabytes
    assert drawn == expected, "best accuracy has no other curve"

    spec = replace(spec, compare_columns=("FedAvg",))
    assert draw_learning_curves(spec, table, cells, finished.store, path)
    panel = saved_figures[2].axes[2]
    assert panel.get_title() == "FedAvg, 5 seeds", "one seed has not finished α=9"
    assert [line.get_label() for line in panel.lines] == ["α=1", "α=9"]
    assert [text.get_text() for text in panel.get_legend().get_texts()] == ["α=1", "α=9"]


def test_a_document_without_a_marker_is_reported(finished: Benchmark, tmp_path: Path) -> None:
    (tmp_path / "papers.md").write_text("no marker")
    message = fill_markdown_tables(tmp_path / "papers.md", finished, write_results(finished))
    assert "has no marker for a table of two" in message


def test_tables_and_figures_are_made_once_for_results_and_document(
    finished: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    from motet.benchmark import benchmark_folder
    from motet.cli import bench

    figures, tables = [], []
    save, build = Figure.savefig, benchmark_folder.build_tables
    monkeypatch.setattr(Figure, "savefig", lambda fig, path, **kw: figures.append(path) or save(fig, path, **kw))
    monkeypatch.setattr(benchmark_folder, "build_tables", lambda *args: tables.append(args) or build(*args))
    document = tmp_path / "papers.md"
    document.write_text(
        "<!-- motet bench two methods -->\n<!-- end -->\n<!-- motet bench two traffic -->\n<!-- end -->\n"
    )
    with pytest.raises(RunError, match="1 cells have no result"):
        bench._print_results(finished, document)
    assert sorted(p.name for p in (tmp_path / "figures").iterdir()) == ["two-methods.png", "two-traffic.png"]
    assert len(figures) == 2
    assert len(tables) == 1


def test_a_figure_shows_every_number_of_its_table(
    finished: Benchmark, tmp_path: Path, saved_figures: list[Any]
) -> None:
    table = finished.tables()[0]
    assert draw_table(table, tmp_path / "methods.png")
    panel, column = saved_figures[0].axes[0], table.columns[0]
    assert (panel.get_title(), panel.get_xlabel()) == (column, "score (%)")
    drawn = {float(x) for line in panel.lines for x in line.get_xdata()}
    entries = [table.entries[row][column] for row in (*table.rows, *table.bounds)]
    assert {entry.mean for entry in entries} <= drawn
    assert {entry.published for entry in entries if entry.published is not None} <= drawn
    labels = [text.get_text() for text in saved_figures[0].legends[0].get_texts()]
    assert "not all seeds" in labels, "FedAvg has no number for one seed of α=9"


def test_a_wide_table_is_drawn_in_lines_of_three_panels(
    finished: Benchmark, tmp_path: Path, saved_figures: list[Any]
) -> None:
    table = finished.tables()[0]
    first = table.columns[0]
    columns = tuple(f"column {i}" for i in range(5))
    entries = {row: dict.fromkeys(columns, table.entries[row][first]) for row in table.entries}
    draw_table(replace(table, columns=columns, entries=entries, axis_labels={}), tmp_path / "wide.png")
    (figure,) = saved_figures
    places = [(axes.get_subplotspec().rowspan.start, axes.get_subplotspec().colspan.start) for axes in figure.axes]
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert [axes.get_title() for axes in figure.axes] == [*columns, ""]


def test_a_figure_marks_the_line_of_a_bound_that_lacks_seeds(
    finished: Benchmark, tmp_path: Path, saved_figures: list[Any]
) -> None:
    table = finished.tables()[0]
    column, bound = table.columns[0], table.bounds[0]
    entries = {row: {column: table.entries[row][column]} for row in table.entries}
    complete = replace(table, columns=(column,), entries=entries)
    fewer = {**entries, bound: {column: replace(entries[bound][column], expected=9)}}
    for each in (complete, replace(complete, entries=fewer)):
        draw_table(each, tmp_path / "methods.png")
    legends = [[text.get_text() for text in figure.legends[0].get_texts()] for figure in saved_figures]
    assert set(legends[1]) - set(legends[0]) == {"not all seeds"}
    (mark,) = (line for line in saved_figures[1].axes[0].lines if line.get_label() == "not all seeds")
    assert (mark.get_xdata()[0], mark.get_markerfacecolor()) == (entries[bound][column].mean, "white")


def test_an_empty_table_has_no_figure(finished: Benchmark, tmp_path: Path) -> None:
    table = finished.tables()[0]
    empty = {row: {column: TableEntry() for column in table.columns} for row in table.entries}
    assert not draw_table(replace(table, entries=empty), tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_numbers_after_different_rounds_share_a_panel(tmp_path: Path, saved_figures: list[Any]) -> None:
    columns = {f"after {n}": {"shows": f"accuracy after {n}"} for n in (1, 2)}
    tables = {"t": {"title": "T", "bounds": {}, "rows": {"FedAvg": {"algorithm": "fedavg"}}, "columns": columns}}
    suite = parse_suite("rounds", yaml.safe_dump({**yaml.safe_load(SUITE), "tables": tables}))
    (table,) = Benchmark(tmp_path, BenchmarkRequest("rounds", 1), suite).tables()
    assert table.over_rounds
    entries = {"FedAvg": {name: TableEntry(values=(50.0,)) for name in table.columns}}
    assert draw_table(replace(table, entries=entries), tmp_path / "one.png")
    (panel,) = saved_figures[0].axes
    assert (panel.get_title(), panel.get_xlabel()) == ("FedAvg", "accuracy (%)")
    assert [label.get_text() for label in panel.get_yticklabels()] == ["after 1", "after 2"]


def test_a_benchmark_is_loaded_with_the_suite_it_was_started_with(finished: Benchmark, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text("title: edited later")
    loaded = load_benchmark(finished.folder)
    assert loaded.suite == finished.suite
    assert loaded.request == finished.request
    assert set(loaded.runs) == set(finished.runs)
    with pytest.raises(ConfigError, match="is not a benchmark folder"):
        load_benchmark(tmp_path)


def test_runs_of_an_older_version_are_found_under_their_old_names(finished: Benchmark) -> None:
    """Renamed recipe keys change the hash in a run's name."""
    cell = next(c for c in finished.cells if c.row == "FedOpt")
    folder = finished.store.run_folder(cell.run.name)
    settings = cell.run.config.to_dict()
    settings["patience"] = settings.pop("wait_policy")
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    folder.rename(folder.with_name("old-name"))
    store = load_benchmark(finished.folder).store
    assert store.run_folder(cell.run.name).name == "old-name"
    assert store.is_done(cell.run.name)


def test_the_number_of_seeds_can_be_set(finished: Benchmark) -> None:
    assert replace(finished, request=replace(finished.request, seeds=1)).seeds == [42]
    with pytest.raises(ConfigError, match="--seeds is 0"):
        _ = replace(finished, request=replace(finished.request, seeds=0)).seeds


def test_a_quick_run_says_that_its_numbers_are_toy_numbers(tmp_path: Path) -> None:
    request = BenchmarkRequest("two", quick=True, only=("methods",))
    benchmark = Benchmark(tmp_path, request, parse_suite("two", SUITE))
    results = collect_results(benchmark, benchmark.tables())
    assert results["title"].startswith("Toy numbers of a quick test")
    assert all(table["title"].startswith("Toy numbers of a quick test") for table in results["tables"].values())
    assert not any(table["claims"] for table in results["tables"].values())


def test_a_quick_run_notes_its_own_settings_and_not_those_of_the_full_suite(tmp_path: Path) -> None:
    suite = parse_suite("two", SUITE.replace("title: Methods", "title: Methods\n    note: 100 clients, 30 rounds."))

    def note(quick: bool) -> str:
        (table,) = Benchmark(tmp_path, BenchmarkRequest("two", quick=quick, only=("methods",)), suite).tables()
        return table.note

    assert note(quick=False) == "100 clients, 30 rounds."
    assert note(quick=True) == "Settings that the quick run changes: rounds=1."


def test_a_quick_run_leaves_out_published_numbers(tmp_path: Path) -> None:
    def published_numbers(quick: bool) -> set[float | None]:
        request = BenchmarkRequest("two", quick=quick, only=("methods",))
        (table,) = Benchmark(tmp_path, request, parse_suite("two", SUITE)).tables()
        return {entry.published for row in table.entries.values() for entry in row.values()}

    assert 53.5 in published_numbers(quick=False)
    assert published_numbers(quick=True) == {None}


@pytest.mark.parametrize(("value", "text"), [(58.312, "58.3"), (1027.4, "1,027"), (0.255, "0.26"), (-3.0, "-3.00")])
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("shows", "value"),
    [
        ("best loss", 0.2),
        ("loss", 0.5),
        ("best accuracy", 90.0),
        ("loss after 1", 0.9),
        ("accuracy after 5", 40.0),
        ("primary_metric after 4", 90.0),
    ],
)
def test_a_metric_is_read_from_the_last_the_best_or_a_given_round(shows: str, value: float, tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    scores = [("loss", 0.9), ("loss", 0.2), ("loss", 0.5), ("accuracy", 0.9), ("accuracy", 0.4)]
    for round, (name, score) in enumerate(scores, 1):
        log.add(round, "server", "global", {name: score}, Traffic())
    assert TableMetric(shows).read({"primary_metric": "accuracy"}, tmp_path) == pytest.approx(value)


def test_rows_with_the_mean_over_clients_are_not_clients(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.add(1, "clients", "test", {"accuracy": 0.1}, Traffic())
    for who, value in (("clients", 0.6), ("a", 0.4), ("b", 0.8)):
        log.add(2, who, "test", {"accuracy": value}, Traffic())
    summary = {"primary_metric": "accuracy"}
    assert TableMetric("local accuracy").read(summary, tmp_path) == pytest.approx(60.0)
    assert TableMetric("worst accuracy").read(summary, tmp_path) == pytest.approx(40.0)


def test_a_number_is_tested_only_if_per_example_scores_give_it(tmp_path: Path) -> None:
    truth, predicted = np.array([0, 1, 0, 1, 2]), np.array([0, 0, 0, 1, 2])
    write_example_scores(tmp_path, {"": with_statistics(truth == predicted, class_statistics(truth, predicted, 3))})
    scores, statistics = TableMetric("accuracy").read_examples(tmp_path, 80.0)
    assert scores is not None and scores.rows.shape == (5, 1)
    assert statistics is not None and statistics.rows.shape == (5, 9)
    assert TableMetric("best accuracy").read_examples(tmp_path, 85.0) == (None, None), "another round"
    scores, statistics = TableMetric("f1").read_examples(tmp_path, 80.0)  # of class 0: 2 correct, 3 predicted, 2 true
    assert scores is not None, "by coincidence, the F1 equals the accuracy"
    assert statistics is not None and statistics.statistic is not None
    scores, statistics = TableMetric("f1_macro").read_examples(tmp_path, 100 * (0.8 + 2 / 3 + 1) / 3)
    assert scores is None and statistics is not None
    assert TableMetric("spearman").read_examples(tmp_path, 90.0) == (None, None), "another metric"


def write_predictions(benchmark: Benchmark, truth: np.ndarray, predictions: dict[str, np.ndarray]) -> None:
    """Write runs of a suite that shows the macro F1, for the methods with predictions."""
    for cell in benchmark.cells:
        predicted = predictions.get(cell.run.config.algorithm.type)
        if predicted is not None and not benchmark.store.is_done(cell.run.name):
            examples = with_statistics(truth == predicted, class_statistics(truth, predicted, 2))
            score = f1_score(truth, predicted, average="macro", zero_division=0)
            write_run(benchmark.store, cell.run.name, score, examples, "f1_macro")


F1_SUITE = SUITE.replace("title: Methods", "title: Methods\n    shows: f1_macro")


def test_an_f1_is_tested_by_its_sufficient_statistics(tmp_path: Path) -> None:
    """FedOpt finds half of a rare class that FedAvg never predicts, at the same accuracy."""
    benchmark = open_suite(tmp_path, F1_SUITE, seeds=5)
    index = np.arange(200)
    truth, rare = (index < 20).astype(int), ((index < 10) | (index >= 190)).astype(int)
    write_predictions(benchmark, truth, {"fedavg": 0 * index, "fedopt": rare})
    methods = benchmark.tables()[0]
    fedavg = methods.entries["FedAvg"]["α=1"]
    assert methods.entries["FedOpt"]["α=1"].is_best
    assert fedavg.p_value is not None and fedavg.p_value < 0.01
    assert not methods.is_without_examples("α=1")


def test_a_column_is_tested_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """By coincidence, FedAvg's F1 equals its accuracy. It must not be compared with the others by accuracy."""
    benchmark = open_suite(tmp_path, F1_SUITE, seeds=1)
    index = np.arange(200)
    truth = index % 2
    fedavg, fedopt = np.where(index < 40, 1 - truth, truth), np.where((index < 60) & (truth == 0), 1, truth)
    write_predictions(benchmark, truth, {"fedavg": fedavg, "fedopt": fedopt})
    assert f1_score(truth, fedavg, average="macro") == pytest.approx(np.mean(truth == fedavg))
    methods = benchmark.tables()[0]
    assert [methods.entries[row]["α=1"].p_value is not None for row in ("FedAvg", "FedOpt")] == [True, False]
    run = next(cell.run.name for cell in benchmark.cells if (cell.row, cell.column) == ("FedAvg", "α=1"))
    path = benchmark.store.run_folder(run) / "summary.json"
    write_json(path, {**json.loads(path.read_text()), "items": "another test set"})
    entry = benchmark.tables()[0].entries["FedAvg"]["α=1"]
    assert entry.comparison is None, "other examples, and too few seeds for a test over seeds alone"


def test_collecting_report_data_writes_nothing(finished: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motet.benchmark.benchmark_report_data.read_run_report", lambda *_: {})
    before = {path: path.stat().st_mtime_ns for path in finished.folder.rglob("*")}
    runs, results = collect_benchmark_report(finished)
    assert len(runs) == results["runs"]["done"] > 0
    assert {path: path.stat().st_mtime_ns for path in finished.folder.rglob("*")} == before
