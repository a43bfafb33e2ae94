"""Suites: how recipes are merged into cells, which mistakes are found, and how claims are checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks import SUITE

from motet.benchmark.benchmark_folder import Benchmark, BenchmarkRequest
from motet.benchmark.cells import build_cells, check_runs, unique_runs
from motet.benchmark.shared_resources import SharedResources
from motet.benchmark.suite import Suite, is_selected, list_suites, load_suite, parse_suite
from motet.benchmark.suite_search import build_searches
from motet.core.errors import ConfigError
from motet.experiment.commands.recipe_runner import prepare_plan
from motet.experiment.recipe import renamed_keys


@pytest.fixture
def suite() -> Suite:
    return parse_suite("two", SUITE)


def cell_paths(suite: Suite, **options: Any) -> list[str]:
    return [f"{c.table}/{c.row}/{c.column}" for c in build_cells(suite, [42], **options)]


def test_later_layers_win_and_the_row_wins_over_the_column(suite: Suite) -> None:
    configs = {(c.row, c.column): c.run.config for c in build_cells(suite, [42]) if c.table == "methods"}
    assert configs["FedOpt", "α=9"].partition.options == {"clients": 3, "alpha": 9.0}
    assert configs["centralized", "α=9"].partition.type == "uniform"
    assert {config.rounds for config in configs.values()} == {2}
    assert {c.run.config.rounds for c in build_cells(suite, [42], quick=True)} == {1}


def test_cells_with_the_same_configuration_share_a_run(suite: Suite) -> None:
    cells = build_cells(suite, [42, 43])
    assert len(cells) == 14
    runs = unique_runs(cells)
    assert len(runs) == 10, "centralized is the same in both columns, and FedOpt at α=1 is in two tables"
    keys = [run.data_key for run in runs.values()]
    assert all(keys.index(key) + keys.count(key) > i for i, key in enumerate(keys)), "same data, next to each other"


def test_the_device_is_not_part_of_a_runs_name(suite: Suite) -> None:
    assert set(unique_runs(build_cells(suite, [42], device="cpu"))) == set(unique_runs(build_cells(suite, [42])))


def test_only_selects_tables_rows_columns_and_globs(suite: Suite) -> None:
    assert cell_paths(suite, only=["traffic"]) == ["traffic/FedOpt/α=1"]
    assert cell_paths(suite, only=["methods/FedAvg"]) == ["methods/FedAvg/α=1", "methods/FedAvg/α=9"]
    assert cell_paths(suite, only=["methods/*/α=9"]) == [
        "methods/FedAvg/α=9",
        "methods/FedOpt/α=9",
        "methods/centralized/α=9",
    ]
    assert is_selected(("a", "b", "c"), ["b"])
    assert not is_selected(("a", "bb", "c"), ["b", "a/b"])
    with pytest.raises(ConfigError, match="no cell matches nothing"):
        cell_paths(suite, only=["nothing"])


def test_a_table_on_request_is_run_only_if_it_is_selected(suite: Suite) -> None:
    assert not any(path.startswith("rare") for path in cell_paths(suite))
    assert cell_paths(suite, only=["rare"])[0] == "rare/FedOpt/OntoNotes"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("tables:", "tabels:"), "has no tables"),
        (
            ("rows: {FedAvg: {algorithm: fedavg}, FedOpt", "rows: {FedOpt"),
            "claim 'FedOpt > FedAvg' names the row 'FedAvg'",
        ),
        (("published: {FedOpt:", "published: {FedOtp:"), "published names the row 'FedOtp', .* Did you mean 'FedOpt'"),
        (
            ("published: {FedOpt:", "compare_columns: [FedOtp]\n    published: {FedOpt:"),
            "compare_columns names the row 'FedOtp', .* Did you mean 'FedOpt'",
        ),
        (
            ("{FedOpt: {α=1: 53.5}}", "{FedOpt: {α=2: 53.5}}"),
            "published of FedOpt names the column 'α=2', .* one of α=1, α=9, AVG",
        ),
        (("{AVG: [α=1, α=9]}", "{AVG: [α=1, α=8]}"), "suite two, table methods: average AVG names the column 'α=8'"),
        (("columns: {α=1: {},", "columns: {1: {}, α=1: {},"), "the name 1 is not a string in YAML. .* quotes: '1'"),
        (("{shows: [accuracy", "{show: [accuracy"), "unknown option 'show'.*Did you mean 'shows'"),
        (("title: Two methods", "titel: Two methods"), "unknown option 'titel'"),
        (("  methods:", '  "../methods":'), "suite two, tables: '../methods' cannot be the name of a folder"),
    ],
)
def test_a_mistake_in_a_suite_is_reported_with_its_position(change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_suite("two", SUITE.replace(*change))


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (
            "FedOtp > FedAvg",
            r"suite two, table methods: claim 'FedOtp > FedAvg' names the row 'FedOtp', .* "
            r"one of FedAvg, FedOpt, centralized, \*\. Did you mean 'FedOpt'\?",
        ),
        ("centralized > FedProx within 2", "names the row 'FedProx'"),
        ("FedOpt/AGV > FedAvg/AVG", r"names the column 'AGV', .* one of α=1, α=9, AVG, \*\. Did you mean 'AVG'\?"),
        ("*/α=9 > */α=7", "names the column 'α=7'"),
        ("FedOpt/α=1 accuracy > FedAvg", "names the column 'α=1 accuracy'"),  # its only metric is called α=1
        ("FedOpt is best", "suite two, table methods: claim 'FedOpt is best' cannot be parsed"),
        ("FedOpt/ > FedAvg", "'FedOpt/' is neither a row nor row/column"),
    ],
)
def test_a_claim_about_an_unknown_row_or_column_is_rejected(claim: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_suite("two", SUITE.replace("claims: [FedOpt > FedAvg,", f"claims: ['{claim}',"))


def test_a_claim_about_a_column_with_several_metrics_names_the_metric() -> None:
    columns = "columns: {α=1: {shows: [accuracy, MB, rounds to 0.7]}}"
    with pytest.raises(ConfigError, match=r"'α=1', .* one of α=1 accuracy, α=1 MB, α=1 rounds to 0\.7, \*\."):
        parse_suite("two", SUITE.replace(columns, f"{columns}\n    claims: [FedOpt/α=1 > FedOpt/α=1 MB]"))
    claims = "claims: [FedOpt/α=1 accuracy > */α=1 MB, '*/* ≥ FedOpt']"
    suite = parse_suite("two", SUITE.replace(columns, f"{columns}\n    {claims}"))
    assert len(suite.table("traffic").claims) == 2


def test_a_metric_of_the_clients_and_the_global_one_are_two_columns() -> None:
    columns = "columns: {α=1: {shows: [accuracy, MB, rounds to 0.7]}}"
    for shows, headings in {
        "[local accuracy, MB]": ["α=1 accuracy", "α=1 MB"],
        "[local accuracy, accuracy]": ["α=1 local accuracy", "α=1 accuracy"],
    }.items():
        suite = parse_suite("two", SUITE.replace(columns, f"columns: {{α=1: {{shows: {shows}}}}}"))
        assert suite.table("traffic").headings == headings


@pytest.mark.parametrize(
    "request_",
    [
        BenchmarkRequest("two", only=("methods/FedAvg/α=1",)),
        BenchmarkRequest("two"),
    ],
)
def test_a_claim_about_cells_that_were_not_run_is_skipped(request_: BenchmarkRequest, tmp_path: Path) -> None:
    text = SUITE.replace("only: [methods]", "only: [methods/FedAvg/α=1]").replace("FedOpt >", "centralized/AVG >")
    table = Benchmark(tmp_path, request_, parse_suite("two", text)).tables()[0]
    assert [(c.claim, c.compared) for c in table.claims] == [("centralized/AVG > FedAvg", 0), ("*/α=9 > */α=1", 0)]


def test_a_quick_benchmark_judges_no_claim(tmp_path: Path) -> None:
    table = Benchmark(tmp_path, BenchmarkRequest("two", quick=True), parse_suite("two", SUITE)).tables()[0]
    assert not table.claims


def test_an_invalid_recipe_is_reported_with_its_cell() -> None:
    misspelled = parse_suite("two", SUITE.replace("FedAvg: {algorithm: fedavg}", "FedAvg: {algorithm: fedafg}"))
    with pytest.raises(ConfigError, match=r"two/methods/FedAvg/α=1: algorithm.type.*fedafg"):
        check_runs(unique_runs(build_cells(misspelled, [42])))
    unknown_key = parse_suite("two", SUITE.replace("rounds: 2", "ruonds: 2"))
    with pytest.raises(ConfigError, match="unknown option 'ruonds'"):
        build_cells(unknown_key, [42])


def test_an_invalid_partition_is_found_without_loading_the_corpus() -> None:
    suite = parse_suite("two", SUITE.replace("alpha: 9.0", "alhpa: 9.0"))
    with pytest.raises(ConfigError, match=r"two/methods/FedAvg/α=9: partition label: unknown option 'alhpa'.*'alpha'"):
        check_runs(unique_runs(build_cells(suite, [42], device="cpu")))


def test_a_metric_that_no_run_has_is_rejected_with_the_suite() -> None:
    text = SUITE.replace("α=1: {}, α=9", "α=1: {shows: accuracy after five}, α=9")
    with pytest.raises(ConfigError, match=r"table methods: shows: 'accuracy after five' is not a number.*after 5"):
        parse_suite("two", text)


def test_a_column_may_select_clients() -> None:
    suite = parse_suite("two", SUITE.replace("α=1: {}, α=9", "α=1: {clients: a}, α=9"))
    assert suite.table("methods").column("α=1").clients == "a"


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", list_suites())
def test_every_shipped_suite_consists_of_valid_recipes_without_old_keys(
    name: str, quick: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    renamed_keys.print_rename_once.cache_clear()
    suite = load_suite(name)
    assert build_cells(suite, [42], quick=quick, only=() if quick else ["*"])
    budgets: dict[str, set[tuple[int, bool]]] = {}
    for search in build_searches(suite, quick=quick):
        has_rate = any(key.path == "solver.lr" for key in search.keys)
        budgets.setdefault(search.table, set()).add((len(search.trials), has_rate))
    assert all(len(budget) == 1 for budget in budgets.values()), (
        "equal trials, and the learning rate for all rows or none"
    )
    assert capsys.readouterr().err == "", "no note about an old key"


@pytest.mark.parametrize("name", ["fedsplit", "methods"])  # the suites with most algorithms; all of them take 8 s
def test_every_method_of_a_quick_suite_accepts_its_model(name: str) -> None:
    configs = {}
    with SharedResources() as resources:
        for cell in build_cells(load_suite(name), [42], quick=True):
            if configs.setdefault(repr(cell.run.config.algorithm), cell.run.config) is cell.run.config:
                assert prepare_plan(cell.run.config, resources.federation(cell.run)).rounds > 0
