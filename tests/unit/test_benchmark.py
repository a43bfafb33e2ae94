"""Suites, the runs they need, and the tables that are made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rich.console import Console
from sklearn.metrics import f1_score

from motet.benchmark.benchmark_folder import Benchmark, BenchmarkRequest, load_benchmark, open_benchmark, write_results
from motet.benchmark.benchmark_report_data import collect_benchmark_report
from motet.benchmark.cells import build_cells, check_runs, unique_runs
from motet.benchmark.claims import check_claims
from motet.benchmark.fill_markdown import fill_markdown_tables
from motet.benchmark.render import format_number, render_latex, render_markdown
from motet.benchmark.result_tables import TableEntry
from motet.benchmark.run_store import RunStore
from motet.benchmark.scheduler import ProgressReporter, run_pending
from motet.benchmark.shared_resources import SharedResources
from motet.benchmark.suite import Suite, is_selected, list_suites, load_suite, parse_suite
from motet.benchmark.table_figures import draw_table
from motet.benchmark.table_metrics import TableMetric
from motet.benchmark.time_estimate import ProbeResult, TimeEstimate, _seconds, estimate_time
from motet.core.errors import ConfigError, RunError
from motet.experiment.loop.example_scores import write_example_scores
from motet.experiment.loop.json_files import write_json
from motet.experiment.loop.metrics_log import MetricsLog
from motet.experiment.recipe.run_config import CohortConfig, ComponentConfig, RunConfig
from motet.report.benchmark_progress import BenchmarkLineProgress
from motet.tasks.sufficient_statistics import class_statistics, with_statistics
from motet.transport.mailbox import Traffic

SUITE = """
title: Two methods
base:
  rounds: 2
  data: {name: toy-classification, limit: 40, test_limit: 20}
  model: {name: tiny, max_tokens: 16, config: {hidden_size: 16, num_hidden_layers: 1, intermediate_size: 16}}
  partition: {type: label, clients: 3, alpha: 1.0}
bounds:
  centralised: {algorithm: centralised, partition: {type: uniform, clients: 3}}
tables:
  methods:
    title: Methods
    rows: {FedAvg: {algorithm: fedavg}, FedOpt: {algorithm: fedopt}}
    columns: {α=1: {}, α=9: {set: {partition: {alpha: 9.0}}}}
    average: {AVG: [α=1, α=9]}
    published: {FedOpt: {α=1: 53.5}}
    claims: [FedOpt > FedAvg, '*/α=9 > */α=1']
  moved:
    title: Moved
    bounds: {}
    rows: {FedOpt: {algorithm: fedopt}}
    columns: {α=1: {shows: [accuracy, MB, rounds to 0.7]}}
  far:
    title: Far
    on_request: true
    rows: {FedOpt: {algorithm: fedopt}}
    columns: {elsewhere: {set: {data: {name: ontonotes}}}}
quick: {set: {rounds: 1}, only: [methods], seeds: 1}
"""


@pytest.fixture
def suite() -> Suite:
    return parse_suite("two", SUITE)


def paths(suite: Suite, **options: Any) -> list[str]:
    return [f"{c.table}/{c.row}/{c.column}" for c in build_cells(suite, [42], **options)]


def test_later_layers_win_and_the_method_has_the_last_word(suite: Suite) -> None:
    by = {(c.row, c.column): c.run.config for c in build_cells(suite, [42]) if c.table == "methods"}
    assert by["FedOpt", "α=9"].partition.options == {"clients": 3, "alpha": 9.0}
    assert by["centralised", "α=9"].partition.type == "uniform"
    assert {c.rounds for c in by.values()} == {2}
    assert {c.run.config.rounds for c in build_cells(suite, [42], quick=True)} == {1}


def test_cells_that_ask_for_the_same_run_share_it(suite: Suite) -> None:
    cells = build_cells(suite, [42, 43])
    assert len(cells) == 14
    runs = unique_runs(cells)
    assert len(runs) == 10  # centralised is the same for both columns, FedOpt at α=1 is in two tables
    together = [run.data_key for run in runs.values()]
    assert all(together.index(s) + together.count(s) > i for i, s in enumerate(together))  # same data, side by side
    again = unique_runs(build_cells(suite, [42, 43], device="cpu"))
    assert set(again) == set(runs)  # where a run happens is not what it is


def test_only_takes_tables_rows_columns_and_globs(suite: Suite) -> None:
    assert paths(suite, only=["moved"]) == ["moved/FedOpt/α=1"]
    assert paths(suite, only=["methods/FedAvg"]) == ["methods/FedAvg/α=1", "methods/FedAvg/α=9"]
    assert paths(suite, only=["methods/*/α=9"]) == [
        "methods/FedAvg/α=9",
        "methods/FedOpt/α=9",
        "methods/centralised/α=9",
    ]
    assert is_selected(("a", "b", "c"), ["b"])
    assert not is_selected(("a", "bb", "c"), ["b", "a/b"])
    with pytest.raises(ConfigError, match="no cell is left by nothing"):
        paths(suite, only=["nothing"])


def test_what_few_have_at_hand_is_run_on_request(suite: Suite) -> None:
    assert not any(p.startswith("far") for p in paths(suite))
    assert paths(suite, only=["far"])[0] == "far/FedOpt/elsewhere"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("tables:", "tabels:"), "has no tables"),
        (
            ("rows: {FedAvg: {algorithm: fedavg}, FedOpt", "rows: {FedOpt"),
            "claim 'FedOpt > FedAvg' names the row 'FedAvg'",
        ),
        (("published: {FedOpt:", "published: {FedOtp:"), "published names the row 'FedOtp', .* Did you mean 'FedOpt'"),
        (
            ("{FedOpt: {α=1: 53.5}}", "{FedOpt: {α=2: 53.5}}"),
            "published of FedOpt names the column 'α=2', .* one of α=1, α=9, AVG",
        ),
        (("{AVG: [α=1, α=9]}", "{AVG: [α=1, α=8]}"), "suite two, table methods: average AVG names the column 'α=8'"),
        (("columns: {α=1: {},", "columns: {1: {}, α=1: {},"), "the name 1 is no text to YAML; put it in quotes: '1'"),
        (("{shows: [accuracy", "{show: [accuracy"), "unknown option 'show'.*Did you mean 'shows'"),
        (("title: Two methods", "titel: Two methods"), "unknown option 'titel'"),
    ],
)
def test_a_mistake_in_a_suite_is_named(change: tuple[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_suite("two", SUITE.replace(*change))


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        (
            "FedOtp > FedAvg",
            r"suite two, table methods: claim 'FedOtp > FedAvg' names the row 'FedOtp', .* "
            r"write one of FedAvg, FedOpt, centralised, \*\. Did you mean 'FedOpt'\?",
        ),
        ("centralised > FedProx within 2", "names the row 'FedProx'"),
        ("FedOpt/AGV > FedAvg/AVG", r"names the column 'AGV', .* one of α=1, α=9, AVG, \*\. Did you mean 'AVG'\?"),
        ("*/α=9 > */α=7", "names the column 'α=7'"),
        ("FedOpt/α=1 accuracy > FedAvg", "names the column 'α=1 accuracy'"),  # it shows one number, and is called α=1
        ("FedOpt is best", "suite two, table methods: claim 'FedOpt is best' is not understood"),
        ("FedOpt/ > FedAvg", "'FedOpt/' is no row and no row/column"),
    ],
)
def test_a_claim_of_what_the_table_has_not_is_refused(claim: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_suite("two", SUITE.replace("claims: [FedOpt > FedAvg,", f"claims: ['{claim}',"))


def test_a_claim_of_one_number_of_several_says_which() -> None:
    columns = "columns: {α=1: {shows: [accuracy, MB, rounds to 0.7]}}"
    with pytest.raises(ConfigError, match=r"'α=1', .* one of α=1 accuracy, α=1 MB, α=1 rounds to 0\.7, \*\."):
        parse_suite("two", SUITE.replace(columns, f"{columns}\n    claims: [FedOpt/α=1 > FedOpt/α=1 MB]"))
    made = parse_suite(
        "two", SUITE.replace(columns, f"{columns}\n    claims: [FedOpt/α=1 accuracy > */α=1 MB, '*/* ≥ FedOpt']")
    )
    assert len(made.table("moved").claims) == 2


@pytest.mark.parametrize(
    "asked",
    [
        BenchmarkRequest("two", only=("methods/FedAvg/α=1",)),
        BenchmarkRequest("two", quick=True),
        BenchmarkRequest("two"),
    ],
)
def test_a_claim_of_what_was_not_asked_for_is_no_mistake(asked: BenchmarkRequest, tmp_path: Path) -> None:
    narrow = parse_suite(
        "two", SUITE.replace("only: [methods]", "only: [methods/FedAvg/α=1]").replace("FedOpt >", "centralised/AVG >")
    )
    table = Benchmark(tmp_path, asked, narrow).tables()[0]
    assert [(v.claim, v.places) for v in table.claims] == [("centralised/AVG > FedAvg", 0), ("*/α=9 > */α=1", 0)]


def test_a_recipe_that_cannot_work_is_said_with_its_cell() -> None:
    broken = parse_suite("two", SUITE.replace("FedAvg: {algorithm: fedavg}", "FedAvg: {algorithm: fedafg}"))
    with pytest.raises(ConfigError, match=r"two/methods/FedAvg/α=1: algorithm.type: there is no 'fedafg'"):
        check_runs(unique_runs(build_cells(broken, [42])))
    odd = parse_suite("two", SUITE.replace("rounds: 2", "ruonds: 2"))
    with pytest.raises(ConfigError, match="unknown option 'ruonds'"):
        build_cells(odd, [42])


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", list_suites())
def test_every_shipped_suite_is_made_of_recipes_that_can_be_built(name: str, quick: bool) -> None:
    made = load_suite(name)
    assert build_cells(made, [42, 43], quick=quick)


@dataclass(frozen=True)
class Mean:
    mean: float | None


def test_claims_are_checked_place_by_place() -> None:
    entries = {
        "a": {"x": Mean(2.0), "y": Mean(1.0)},
        "b": {"x": Mean(1.0), "y": Mean(1.5)},
        "c": {"x": Mean(None), "y": Mean(9.0)},
    }

    def verdict(claim: str, lower: tuple[str, ...] = ()) -> tuple[int, int]:
        (found,) = check_claims([claim], "abc", "xy", entries, lower)
        return found.held, found.places

    assert verdict("a > b") == (1, 2)
    assert verdict("a ≈ b within 0.6") == (1, 2)
    assert verdict("a/x > b/x") == (1, 1)
    assert verdict("a/x > b/x", lower=("x",)) == (0, 1)
    assert verdict("*/x > */y") == (1, 2)  # c has no x
    assert verdict("c > a") == (1, 1)
    assert verdict("c/y > *") == verdict("c/y > */y") == (2, 2)  # of itself is not asked
    assert verdict("b > a/x") == verdict("b/x > a/x") == (0, 1)
    assert verdict("a/x > b/*") == (2, 2)


def pretend(store: RunStore, name: str, score: float, items: np.ndarray, metric: str = "accuracy", **rest: Any) -> None:
    """A run that ended so."""
    place = store.run_folder(name)
    place.mkdir(parents=True)
    rows = [
        {
            "round": r,
            "who": "server",
            "split": "global",
            "name": metric,
            "value": v,
            "seconds": r,
            "bytes": r * 1_000_000,
        }
        for r, v in ((1, score / 2), (2, score))
    ]
    (place / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    write_example_scores(place, {"": items})
    moved = {"payload_up": 1_000_000, "payload_down": 1_000_000}
    summary = {
        "headline": metric,
        "final": {metric: score},
        "bytes": moved,
        "seconds": 3.0,
        "items": "k",
        "machine": {"cores": "2 cores"},
    }
    write_json(place / "summary.json", {**summary, **rest})


@pytest.fixture
def finished(tmp_path: Path) -> Benchmark:
    """FedOpt is right on 80 or 78 of 100 items, FedAvg on 70; all runs are there but one."""
    (tmp_path / "two.yaml").write_text(SUITE)
    made = open_benchmark(BenchmarkRequest(str(tmp_path / "two.yaml"), seeds=2), tmp_path / "out")
    for cell in made.cells:
        right = {"fedopt": 80 if cell.seed == 42 else 78, "fedavg": 70, "centralised": 95}[
            cell.run.config.algorithm.type
        ]
        if cell.row == "FedAvg" and cell.column == "α=9":
            if cell.seed == 43:
                made.store.run_folder(cell.run.name).mkdir(parents=True)
                made.store.record_failure(cell.run.name, "it went wrong")
                continue
            right = 79
        if not made.store.is_done(cell.run.name):
            pretend(made.store, cell.run.name, right / 100, (np.arange(100) < right).astype(np.float32)[:, None])
    return made


def test_tables_tell_mean_deviation_best_and_what_is_not_told_apart(finished: Benchmark) -> None:
    methods, moved = finished.tables()
    opt, avg = methods.entries["FedOpt"]["α=1"], methods.entries["FedAvg"]["α=1"]
    assert (opt.mean, opt.deviation) == (pytest.approx(79.0), pytest.approx(2**0.5))
    assert opt.best
    assert opt.published == 53.5
    assert avg.p is not None and avg.p < 0.05  # nine items of a hundred, none the other way
    assert not avg.tied
    assert not methods.entries["centralised"]["α=1"].best  # a bound is not ranked
    assert methods.entries["FedOpt"]["AVG"].mean == pytest.approx(79.0)
    assert methods.entries["FedAvg"]["AVG"].missing == "some are missing"
    assert [v.holds for v in methods.claims] == [False, False]
    assert moved.entries["FedOpt"]["α=1 MB"].mean == 2.0
    assert moved.entries["FedOpt"]["α=1 rounds to 0.7"].mean == 2.0
    assert moved.lower == ("α=1 MB", "α=1 rounds to 0.7")


def test_results_are_written_as_markdown_latex_and_json(finished: Benchmark) -> None:
    tables = write_results(finished)
    text = (finished.folder / "results.md").read_text()
    assert "| FedOpt | **79.0 ± 1.4** (53.5) |" in text
    assert (finished.folder / "methods.png").exists()
    assert "*centralised* | 95.0 ± 0.0" in text
    assert "methods/FedAvg/α=9, seed 43: it went wrong" in text
    assert "| **79.0** † |" in text  # one of its two seeds
    assert "†: not all seeds" in text
    tex = (finished.folder / "results.tex").read_text()
    assert r"$\mathbf{79.0 \pm 1.4}$ (53.5)" in tex
    assert r"$\alpha$=1" in tex
    assert tex.count(r"\begin{table}") == tex.count(r"\end{table}") == 2
    found = json.loads((finished.folder / "results.json").read_text())
    assert found["tables"]["methods"]["cells"]["FedOpt"]["α=1"]["values"] == pytest.approx([80.0, 78.0])
    assert found["runs"] == {"all": 10, "done": 9}
    assert render_markdown(tables[0]).count("\n| ") == 5
    assert render_latex(tables[0], "x").splitlines()[3] == r"  \label{tab:x}"


def test_a_place_in_a_page_is_filled_and_filled_again(finished: Benchmark, tmp_path: Path) -> None:
    page = tmp_path / "papers.md"
    page.write_text("Before.\n\n<!-- motet bench two methods -->\nstale\n<!-- end -->\n\nAfter.\n")
    tables = write_results(finished)
    assert "methods filled in" in fill_markdown_tables(page, finished, tables)
    once = page.read_text()
    assert "**79.0 ± 1.4** (53.5)" in once
    assert "stale" not in once
    assert once.startswith("Before.")
    assert once.endswith("After.\n")
    (picture,) = re.findall(r"!\[.+\]\((figures/two-methods\.png)\)", once)
    assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / picture).read_bytes() == finished.figure_path("methods").read_bytes()
    fill_markdown_tables(page, finished, tables)
    assert page.read_text() == once
    finished.figure_path("methods").unlink()  # its runs are gone
    fill_markdown_tables(page, finished, tables)
    assert "figures/" not in page.read_text()
    assert not (tmp_path / picture).exists()
    page.write_text("nothing here")
    assert "has no place" in fill_markdown_tables(page, finished, tables)


def test_a_picture_is_drawn_once_and_a_table_made_once_for_results_and_page(
    finished: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    from motet.benchmark import benchmark_folder as session
    from motet.cli import bench

    drawn, made = [], []
    save, tables = Figure.savefig, session.build_tables
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **how: drawn.append(path) or save(figure, path, **how))
    monkeypatch.setattr(session, "build_tables", lambda *of: made.append(of) or tables(*of))
    page = tmp_path / "papers.md"
    page.write_text("<!-- motet bench two methods -->\n<!-- end -->\n<!-- motet bench two moved -->\n<!-- end -->\n")
    with pytest.raises(RunError, match="1 cells have no run"):
        bench._tell(finished, page)
    assert sorted(p.name for p in (tmp_path / "figures").iterdir()) == ["two-methods.png", "two-moved.png"]
    assert len(drawn) == 2
    assert len(made) == 1


def test_a_picture_has_every_number_of_its_table(
    finished: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    kept: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: kept.append(figure))
    table = finished.tables()[0]
    assert draw_table(table, tmp_path / "methods.png")
    (figure,) = kept
    panel = figure.axes[0]
    assert panel.get_title() == table.columns[0]
    drawn = {float(x) for line in panel.lines for x in line.get_xdata()}
    wanted = [table.entries[row][table.columns[0]] for row in (*table.rows, *table.bounds)]
    assert {e.mean for e in wanted if e.mean is not None} | {
        e.published for e in wanted if e.published is not None
    } <= drawn
    empty = {row: {c: TableEntry() for c in table.columns} for row in table.entries}
    assert not draw_table(replace(table, entries=empty), tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_a_methods_numbers_after_different_rounds_stand_in_one_panel(
    finished: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    kept: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: kept.append(figure))
    table = finished.tables()[0]
    assert not table.over_rounds
    columns = {f"after {n}": {"shows": f"accuracy after {n}"} for n in (1, 2)}
    course = {"t": {"title": "T", "bounds": {}, "rows": {"FedAvg": {"algorithm": "fedavg"}}, "columns": columns}}
    suite = parse_suite("course", yaml.safe_dump({**yaml.safe_load(SUITE), "tables": course}))
    (table,) = Benchmark(tmp_path, BenchmarkRequest("course", 1), suite).tables()
    assert table.over_rounds
    some = {"FedAvg": {name: TableEntry(values=(50.0,)) for name in table.columns}}
    assert draw_table(replace(table, entries=some), tmp_path / "one.png")
    (panel,) = kept[0].axes
    assert panel.get_title() == "FedAvg"
    assert [label.get_text() for label in panel.get_yticklabels()] == ["after 1", "after 2"]


def test_a_benchmark_goes_on_as_it_was_asked_for(finished: Benchmark, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text("title: changed since")
    again = load_benchmark(finished.folder)
    assert again.suite == finished.suite
    assert set(again.runs) == set(finished.runs)
    with pytest.raises(ConfigError, match="is no benchmark"):
        load_benchmark(tmp_path)


def test_a_run_is_claimed_by_one_and_done_once(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.claim("x") as mine, store.claim("x") as theirs:
        assert (mine, theirs) == (True, False)
    store.record_failure("x", "why")
    with store.claim("x") as mine:
        assert not mine
    store.clear_failures(["x"])
    with store.claim("x") as mine:
        assert mine


def test_runs_on_the_same_data_share_corpus_and_federation(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    from motet.benchmark import shared_resources as module

    read: list[Any] = []
    original = module.read_corpus
    monkeypatch.setattr(module, "read_corpus", lambda *a: read.append(a) or original(*a))
    runs = list(unique_runs(build_cells(suite, [42, 43], device="cpu")).values())
    with SharedResources() as stock:
        one, two = (
            stock.federation(r) for r in runs if r.config.seed == 42 and r.config.partition.options.get("alpha") == 1.0
        )
        assert one is two
        other = stock.federation(next(r for r in runs if r.config.seed == 43))
        assert other is not one
    assert len(read) == 1


def test_an_estimate_learns_from_what_runs_really_took() -> None:
    estimate = TimeEstimate({"a": 10.0, "b": 10.0, "c": 20.0}, jobs=2)
    assert estimate.seconds_left(["a", "b", "c"]) == 20.0
    estimate.record("a", 30.0)
    assert estimate.seconds_left(["b", "c"]) == 45.0


def test_clients_that_a_corpus_brings_are_counted(suite: Suite) -> None:
    """A few of many are trained in a round: with as many clients as there are, a round is so much less work."""

    def seconds(clients: int) -> float:
        cell = build_cells(suite, [42], only=["methods/FedAvg/α=1"], device="cpu")[0]
        config = replace(cell.run.config, partition=ComponentConfig("natural"), cohort=CohortConfig(size=2))
        return _seconds(config, ProbeResult(step=1.0, memory=0, train=32_000, test=0, clients=clients)) - 1

    assert seconds(10) == 10 * seconds(100)


@pytest.mark.parametrize(("value", "said"), [(58.312, "58.3"), (1027.4, "1,027"), (0.255, "0.26"), (-3.0, "-3.00")])
def test_numbers_have_the_digits_that_say_something(value: float, said: str) -> None:
    assert format_number(value) == said


def test_a_suite_may_be_looked_at_with_fewer_seeds(finished: Benchmark) -> None:
    fewer: Mapping[str, Any] = vars(replace(finished, request=replace(finished.request, seeds=1)))
    assert Benchmark(**{k: v for k, v in fewer.items() if k in ("folder", "request", "suite")}).seeds == [42]
    with pytest.raises(ConfigError, match="--seeds is 0"):
        _ = replace(finished, request=replace(finished.request, seeds=0)).seeds


def test_a_method_that_cannot_work_on_a_model_is_said_before_anything_runs(tmp_path: Path) -> None:
    split = {"rows": {"FedAvg": {"algorithm": "fedavg"}, "Split": {"algorithm": {"type": "fedsplit", "c": 1}}}}
    text = yaml.safe_dump({**yaml.safe_load(SUITE), "tables": {"t": {"title": "T", "columns": {"x": {}}, **split}}})
    runs = unique_runs(build_cells(parse_suite("split", text), [42], device="cpu"))
    with (
        SharedResources() as stock,
        pytest.raises(ConfigError, match=r"^split/t/Split/x: fedsplit wants embeddings frozen"),
    ):
        estimate_time(runs, stock, 1)


def test_a_toy_does_not_stand_beside_the_papers_numbers(tmp_path: Path, suite: Suite) -> None:
    def numbers(quick: bool) -> set[float | None]:
        (table,) = Benchmark(tmp_path, BenchmarkRequest("two", quick=quick, only=("methods",)), suite).tables()
        return {entry.published for row in table.entries.values() for entry in row.values()}

    assert 53.5 in numbers(quick=False)
    assert numbers(quick=True) == {None}


def test_a_fault_in_one_run_does_not_end_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executors: list[tuple[str, Any]] = []

    def broken(config: RunConfig, place: Path, federation: Any, executor: Any, **_: Any) -> Any:
        executors.append((config.algorithm.type, executor))
        if config.algorithm.type == "fedopt":
            raise RuntimeError("two devices")
        write_json(place / "summary.json", {"seconds": 1.0, "headline": "accuracy", "final": {"accuracy": 0.5}})
        return {"seconds": 1.0, "headline": "accuracy", "final": {"accuracy": 0.5}}

    monkeypatch.setattr("motet.benchmark.scheduler.run_experiment", broken)
    runs = unique_runs(build_cells(parse_suite("two", SUITE), [42], only=["methods/*/α=1"], device="cpu"))
    store = RunStore(tmp_path)
    with SharedResources() as stock:
        run_pending(runs, store, stock, BenchmarkLineProgress(Console(quiet=True)))
    at = [kind for kind, _ in executors].index("fedopt")
    assert 0 < at < len(executors) - 1
    assert executors[at - 1][1] is executors[at][1] is not executors[at + 1][1], (
        "jobs of the failed run may be left on its bench"
    )
    failed = {run.config.algorithm.type: store.failure(name) for name, run in runs.items()}
    assert failed["fedavg"] is None and failed["centralised"] is None
    assert failed["fedopt"] is not None and "RuntimeError: two devices" in failed["fedopt"]
    (trace,) = tmp_path.rglob("traceback.txt")
    assert "in broken" in trace.read_text("utf-8")


def test_how_a_run_ended_is_said_once_whoever_carried_it_out(tmp_path: Path) -> None:
    runs = unique_runs(build_cells(parse_suite("two", SUITE), [42], only=["methods/*/α=1"], device="cpu"))
    store, estimate, screen = (
        RunStore(tmp_path),
        TimeEstimate(dict.fromkeys(runs, 10.0), jobs=1),
        Console(record=True, width=120),
    )
    callback = BenchmarkLineProgress(screen)
    callback.on_benchmark_begin(len(runs), 0)
    reporter = ProgressReporter(runs, store, estimate, callback)
    first, second, _ = runs
    for name in (first, second):
        store.run_folder(name).mkdir(parents=True)
    write_json(
        store.run_folder(first) / "summary.json", {"seconds": 20.0, "headline": "accuracy", "final": {"accuracy": 0.5}}
    )
    store.record_failure(second, "no room")
    reporter.report()
    reporter.report()
    said = screen.export_text().splitlines()
    assert len(said) == 2
    assert "accuracy 0.500, 20 s; 20 s left" in said[0], "the third is expected to take twice as long as was thought"
    assert "FAILED: no room" in said[1]


@pytest.mark.parametrize(
    ("shows", "value"),
    [
        ("best loss", 0.2),
        ("loss", 0.5),
        ("best accuracy", 90.0),
        ("loss after 1", 0.9),
        ("accuracy after 5", 40.0),
        ("headline after 4", 90.0),
    ],
)
def test_best_is_least_where_less_is_better(shows: str, value: float, tmp_path: Path) -> None:
    rows = [("loss", 0.9), ("loss", 0.2), ("loss", 0.5), ("accuracy", 0.9), ("accuracy", 0.4)]
    record = MetricsLog(tmp_path)
    for round, (name, found) in enumerate(rows, 1):
        record.add(round, "server", "global", {name: found}, Traffic())
    assert TableMetric(shows).value({"headline": "accuracy"}, tmp_path) == pytest.approx(value)


def test_means_over_clients_are_no_clients(tmp_path: Path) -> None:
    """They are written each time the clients' own test sets are looked at."""
    record = MetricsLog(tmp_path)
    record.add(1, "clients", "test", {"accuracy": 0.1}, Traffic())
    for who, value in (("clients", 0.6), ("a", 0.4), ("b", 0.8)):
        record.add(2, who, "test", {"accuracy": value}, Traffic())
    summary = {"headline": "accuracy"}
    assert TableMetric("own accuracy").value(summary, tmp_path) == pytest.approx(60.0)
    assert TableMetric("worst accuracy").value(summary, tmp_path) == pytest.approx(40.0)


@pytest.mark.parametrize(
    ("shows", "says"),
    [
        ("accuray", r"^two/methods/FedAvg/α=1: shows: 'accuray': this task has .*Did you mean 'accuracy'"),
        ("accuray after 1", "Did you mean 'accuracy'"),
        ("accuracy after 3", r"there are 2 rounds, judged after every 1"),
    ],
)
def test_what_no_run_will_have_is_said_before_anything_runs(shows: str, says: str, tmp_path: Path) -> None:
    text = SUITE.replace("α=1: {}, α=9", f"α=1: {{shows: {shows}}}, α=9")
    benchmark = Benchmark(
        tmp_path, BenchmarkRequest("two", seeds=1, only=("methods/FedAvg/α=1",), device="cpu"), parse_suite("two", text)
    )
    with SharedResources() as stock, pytest.raises(ConfigError, match=says):
        estimate_time(benchmark.runs, stock, 1, benchmark.metrics)


def test_what_cannot_be_read_off_any_run_is_refused_with_the_suite() -> None:
    with pytest.raises(ConfigError, match=r"table methods: shows: 'accuracy after five' is nothing a run has.*after 5"):
        build_cells(parse_suite("two", SUITE.replace("α=1: {}, α=9", "α=1: {shows: accuracy after five}, α=9")), [42])


def test_a_partition_that_cannot_be_meant_is_found_without_its_corpus() -> None:
    runs = unique_runs(build_cells(parse_suite("two", SUITE.replace("alpha: 9.0", "alhpa: 9.0")), [42], device="cpu"))
    with pytest.raises(ConfigError, match=r"two/methods/FedAvg/α=9: partition label: unknown option 'alhpa'.*'alpha'"):
        check_runs(runs)


def test_only_what_follows_from_items_is_tested_over_items(tmp_path: Path) -> None:
    truth, said = np.array([0, 1, 0, 1, 2]), np.array([0, 0, 0, 1, 2])
    write_example_scores(tmp_path, {"": with_statistics(truth == said, class_statistics(truth, said, 3))})
    scores, tallies = TableMetric("accuracy").items(tmp_path, 80.0)
    assert scores is not None and scores.rows.shape == (5, 1)
    assert tallies is not None and tallies.rows.shape == (5, 9)
    assert TableMetric("best accuracy").items(tmp_path, 85.0) == (None, None), "of another round"
    scores, tallies = TableMetric("f1").items(tmp_path, 80.0)  # of class 0: 2 right, 3 said, 2 true
    assert scores is not None, "which it happens to equal"
    assert tallies is not None and tallies.statistic is not None
    scores, tallies = TableMetric("f1_macro").items(tmp_path, 100 * (0.8 + 2 / 3 + 1) / 3)
    assert scores is None and tallies is not None
    assert TableMetric("spearman").items(tmp_path, 90.0) == (None, None), "another metric"


def test_an_f1_is_tested_as_the_f1_it_is(tmp_path: Path) -> None:
    """FedOpt finds half of a rare class that FedAvg never says, with as many mistakes elsewhere: right equally often."""
    (tmp_path / "two.yaml").write_text(SUITE.replace("title: Methods", "title: Methods\n    shows: f1_macro"))
    made = open_benchmark(BenchmarkRequest(str(tmp_path / "two.yaml"), seeds=2), tmp_path / "out")
    at = np.arange(200)
    truth, says = (at < 20).astype(int), {"fedavg": 0 * at, "fedopt": ((at < 10) | (at >= 190)).astype(int)}
    for cell in made.cells:
        said = says.get(cell.run.config.algorithm.type)
        if said is not None and not made.store.is_done(cell.run.name):
            rows = with_statistics(truth == said, class_statistics(truth, said, 2))
            pretend(
                made.store, cell.run.name, f1_score(truth, said, average="macro", zero_division=0), rows, "f1_macro"
            )
    methods = made.tables()[0]
    other = methods.entries["FedAvg"]["α=1"]
    assert methods.entries["FedOpt"]["α=1"].best
    assert other.p is not None and other.p < 0.01
    assert not methods.untested("α=1")


def test_a_column_is_tested_as_a_whole_or_not(tmp_path: Path) -> None:
    """One method's F1 happens to be its accuracy, which is no reason to compare it with others by something else."""
    (tmp_path / "two.yaml").write_text(SUITE.replace("title: Methods", "title: Methods\n    shows: f1_macro"))
    made = open_benchmark(BenchmarkRequest(str(tmp_path / "two.yaml"), seeds=1), tmp_path / "out")
    at = np.arange(200)
    truth = at % 2
    says = {"fedavg": np.where(at < 40, 1 - truth, truth), "fedopt": np.where((at < 60) & (truth == 0), 1, truth)}
    for cell in made.cells:
        said = says.get(cell.run.config.algorithm.type)
        if said is not None and not made.store.is_done(cell.run.name):
            rows = with_statistics(truth == said, class_statistics(truth, said, 2))
            pretend(made.store, cell.run.name, f1_score(truth, said, average="macro"), rows, "f1_macro")
    assert f1_score(truth, says["fedavg"], average="macro") == pytest.approx(0.8)  # as its accuracy is
    methods = made.tables()[0]
    assert [methods.entries[row]["α=1"].p is not None for row in ("FedAvg", "FedOpt")] == [True, False]
    one = next(c.run.name for c in made.cells if (c.row, c.column) == ("FedAvg", "α=1"))
    summary = json.loads((made.store.run_folder(one) / "summary.json").read_text())
    write_json(made.store.run_folder(one) / "summary.json", {**summary, "items": "others"})
    assert made.tables()[0].untested("α=1"), "not the same items"


def test_telling_a_benchmark_writes_nothing(finished: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motet.benchmark.benchmark_report_data.read_run_report", lambda *_: {})
    before = {p: p.stat().st_mtime_ns for p in finished.folder.rglob("*")}
    runs, told = collect_benchmark_report(finished)
    assert len(runs) == told["runs"]["done"] > 0
    assert {p: p.stat().st_mtime_ns for p in finished.folder.rglob("*")} == before
