"""A damaged file of a run gives a sentence that names it, or does no harm: never a traceback."""

from __future__ import annotations

import copy
import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from importlib import resources
from io import StringIO
from pathlib import Path
from typing import Any, NotRequired, get_origin, get_type_hints

import pytest
from tests.benchmarks import SUITE, finished_benchmark
from typer.testing import CliRunner

from motet.benchmark.benchmark_folder import collect_results, load_benchmark, render_results
from motet.benchmark.measured_settings import SHIPPED_RESULTS, load_settings
from motet.benchmark.suite import parse_suite
from motet.cli import app
from motet.cli.runs import print_results
from motet.core.errors import MotetError, RunError
from motet.dashboard.run_catalog import RunCatalog
from motet.experiment.commands.compare import compare_runs, load_paired_runs
from motet.experiment.commands.data_inspection import read_inspections
from motet.experiment.commands.model_card import describe_run
from motet.experiment.commands.model_export import read_adapter_config, read_model_config
from motet.experiment.commands.recipe_runner import FinishedRun
from motet.experiment.commands.report_data import collect_run_reports
from motet.experiment.commands.run_folder import load_config, load_summary
from motet.experiment.commands.run_records import LabelRecord, PartitionTable, SummaryRecord
from motet.experiment.commands.run_state import describe_state, read_failure
from motet.experiment.deploy.deployment_record import DeploymentRecord
from motet.experiment.deploy.stored_federation import read_federation
from motet.experiment.loop.example_scores import EXAMPLE_SCORES, read_example_scores
from motet.experiment.loop.metrics_log import read_metrics
from motet.experiment.loop.text_samples import read_samples
from motet.experiment.recipe.recipe_files import load_recipe
from motet.experiment.recipe.run_config import RunConfig
from motet.experiment.recipe.start_folder import find_start_folder
from motet.experiment.recipe.yaml_files import parse_yaml
from motet.privacy.accountant_log import FILE_NAME as ACCOUNTANT_FILE
from motet.privacy.accountant_log import AccountantLog
from motet.report.console_tables import build_comparison_table
from motet.report.run_status import format_status, read_status
from motet.transport.json_files import read_json, write_json
from motet.wire import serialize
from motet.wire.value_files import load_value

DELETED = object()
VALUES = (None, 7, "x", [7], {"x": 7})

# What a run without training, without samples and without a server does not have.
MORE_FILES: dict[str, Any] = {
    "samples.json": [{"prompt": "a", "reference": "b", "before": "c", "after": "d"}],
    "failed.json": {"why": "the disk was full", "lacked_memory": False},
    "deployment.json": {"run": "0a", "clients": ["north"], "groups": {"north": "a"}, "token_hashes": {"north": "b"}},
    "adapter_config.json": {"base_model_name_or_path": "tiny"},
    "config.json": {"architectures": ["BertModel"], "model_type": "bert"},
}
# These would make it the folder of a server, or of a benchmark.
REQUEST = {"suite": "two", "seeds": 5, "quick": False, "only": ["methods"], "device": "cpu"}
STATUS: dict[str, Any] = {
    **{"state": "running", "run": "toy", "rounds": 3, "done": 1, "round": 2, "cohort": 2, "answered": 1},
    **{"scores": {"accuracy": 0.5}, "bytes_up": 10, "bytes_down": 10, "rounds_timed": 1, "round_seconds": 2.5},
    **{"connected": ["north"], "away": ["south"], "waited_for": {"south": 1.5}, "refused": {"south": 1}},
    **{"traffic": {"north": {"up": 1, "down": 1}}, "failures": {"north": 1}},
}
READERS: dict[str, Callable[[Path], Any]] = {
    "summary.json": load_summary,
    "version.json": find_start_folder,
    "inspection.json": read_inspections,
    "partition.json": lambda folder: read_json(folder / "partition.json", PartitionTable),
    "labels.json": lambda folder: read_json(folder / "labels.json", dict[str, LabelRecord]),
    "samples.json": read_samples,
    "failed.json": read_failure,
    "status.json": lambda folder: format_status(read_status(str(folder))),
    "deployment.json": DeploymentRecord.open,
    "config.json": read_model_config,
    "adapter_config.json": read_adapter_config,
    "request.json": load_benchmark,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with every file that a run may have."""
    folder = tmp_path_factory.mktemp("damaged") / "run"
    settings = ["rounds=1", "data.limit=60", "data.test_limit=20", "partition.clients=2", "model.max_tokens=16"]
    words = ["run", "toy-classification", *settings, "evaluation.save_example_scores=true", "--out", str(folder)]
    assert CliRunner().invoke(app, words).exit_code == 0
    for name, value in MORE_FILES.items():
        write_json(folder / name, value)
    (folder / "suite.yaml").write_text(SUITE)
    return folder


@pytest.fixture
def damaged(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def list_places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of all values; of a list, only of the first entry."""
    yield place
    keys = list(value) if isinstance(value, dict) else [0] if isinstance(value, list) and value else []
    for key in keys:
        yield from list_places(value[key], (*place, key))


def change(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """Return a copy of a value with another value at a place, or without that place."""
    if not place:
        return None if new is DELETED else new
    value = copy.deepcopy(value)
    parent = value
    with suppress(KeyError, IndexError, TypeError):  # an earlier change has removed it
        for key in place[:-1]:
            parent = parent[key]
        if new is DELETED:
            del parent[place[-1]]
        else:
            parent[place[-1]] = new
    return value


def damage(original: Any, new: Any, is_accepted: Callable[[Any], bool]) -> Any:
    """Put a value into all places where the reader accepts it: what it accepts, no command may fail on."""
    value = original
    for place in list_places(original):
        candidate = change(value, place, new)
        if place and is_accepted(candidate):
            value = candidate
    return value


def accepts(read: Callable[[], Any], path: Path) -> bool:
    """Return whether a file can be read. If it cannot, the error says which file, and what to do."""
    try:
        read()
    except MotetError as error:
        assert f"'{path}" in str(error)
        assert re.search(r"Restore it|Export the model again", str(error))
        return False
    return True


def look_at(run: Path, other: Path) -> None:
    """Do what all commands that take a finished run do with it."""
    with suppress(MotetError):  # the runs may differ in their examples now
        build_comparison_table(compare_runs(run, other).results, ("a", "b"))
    with suppress(MotetError):
        load_paired_runs(run, other)
    collect_run_reports({"a": run})
    format_status(describe_state(str(run)))
    describe_run(load_config(run), load_summary(run) or {}, run).render()
    catalog = RunCatalog(run.parent)
    assert [entry.get("reason") for entry in catalog.entries()] == [""]
    catalog.statuses()
    with redirect_stdout(StringIO()):
        print_results(FinishedRun(run, load_summary(run) or {}, {}))


@pytest.mark.parametrize("name", READERS)
def test_every_entry_of_a_file_is_checked_when_it_is_read(damaged: Path, name: str) -> None:
    path, read = damaged / name, READERS[name]
    if name in ("status.json", "request.json"):
        write_json(path, STATUS if name == "status.json" else REQUEST)
    if name == "failed.json":
        (damaged / "summary.json").unlink()
    original = json.loads(path.read_text())
    assert accepts(lambda: read(damaged), path)
    content = [b"", b"{", b"[" * 100_000, b"\xff\xfe\xfd"]
    content += [json.dumps(value).encode() for value in (None, 7, "x", [7])]
    for data in content:
        path.write_bytes(data)
        assert not accepts(lambda: read(damaged), path), data[:9]
    for number, place in enumerate(list_places(original)):
        for new in (DELETED, VALUES[number % len(VALUES)]) if place else ():
            path.write_text(json.dumps(change(original, place, new)))
            accepts(lambda: read(damaged), path)


@pytest.mark.parametrize("new", [DELETED, None, "x", {"x": 7}], ids=["deleted", "null", "text", "object"])
def test_no_command_fails_on_a_file_that_was_accepted(
    run: Path, damaged: Path, new: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands must not read entries that are not checked."""
    for name in ("summary.json", "inspection.json", "samples.json", "labels.json", "partition.json"):
        path = damaged / name

        def is_accepted(value: Any, path: Path = path, read: Callable[[Path], Any] = READERS[name]) -> bool:
            path.write_text(json.dumps(value))
            return accepts(lambda: read(damaged), path)

        path.write_text(json.dumps(damage(json.loads((run / name).read_text()), new, is_accepted)))
    monkeypatch.setattr("motet.experiment.commands.run_figures.draw_figures", lambda finished: None)
    look_at(damaged, run)


def test_no_table_of_a_benchmark_needs_more_than_is_checked(run: Path, tmp_path: Path) -> None:
    """The summaries of a benchmark keep only the entries that a run must have."""
    summary = json.loads((run / "summary.json").read_text())
    benchmark = finished_benchmark(tmp_path, seeds=2)
    hints = get_type_hints(SummaryRecord, include_extras=True)
    required = {name: summary[name] for name, hint in hints.items() if get_origin(hint) is not NotRequired}
    for path in tmp_path.rglob("summary.json"):
        write_json(path, required)
    tables = benchmark.tables()
    assert "79.0" in render_results(benchmark, tables)
    assert collect_results(benchmark, tables)["machines"] == []


def test_a_damaged_row_of_the_metrics_is_named(run: Path, damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motet.experiment.commands.run_figures.draw_figures", lambda finished: None)
    path = damaged / "metrics.jsonl"
    first, *others = path.read_text().splitlines()
    row = json.loads(first)

    def is_accepted(value: Any) -> bool:
        path.write_text("\n".join([json.dumps(value), *others]) + "\n")
        return accepts(lambda: read_metrics(damaged), path)

    for key, new in itertools.product(row, (DELETED, None, [7])):
        assert not is_accepted(change(row, (key,), new))
    for new in (7, "x"):
        assert is_accepted(damage(row, new, is_accepted))
        look_at(damaged, run)


def test_damaged_scores_and_releases_are_named(run: Path, damaged: Path) -> None:
    path, content = damaged / EXAMPLE_SCORES, (run / EXAMPLE_SCORES).read_bytes()
    for data in (b"", b"PK", content[:-40], content[:60] + bytes(60) + content[120:], b"[]"):
        path.write_bytes(data)
        assert not accepts(lambda: read_example_scores(damaged), path)
    releases = damaged / ACCOUNTANT_FILE
    for line in ("[]", '["a"]', '["a", 7]', '[7, ["north"]]', '{"a": []]', '["a", [7]]', "[" * 100_000 + "]"):
        releases.write_text(f'["a", ["north"]]\n{line}')
        with pytest.raises(RunError, match="is not a release"):
            AccountantLog(releases)


def test_a_damaged_state_is_named(damaged: Path, tmp_path: Path) -> None:
    for path in (damaged / "checkpoint" / "state", damaged / "groups"):  # the export reads the groups first
        path.write_bytes(path.read_bytes()[:-9])
        result = CliRunner().invoke(app, ["export", str(damaged), "--to", str(tmp_path / "model")])
        assert f"'{path}' is damaged" in result.output
        assert result.exit_code == 1


def test_every_entry_of_the_stored_groups_is_checked(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motet.experiment.deploy.stored_federation.load_model", lambda *_: None)
    config, path = load_config(damaged), damaged / "groups"
    original = load_value(path)

    def is_accepted(value: Any) -> bool:
        path.write_bytes(serialize(value))
        return accepts(lambda: read_federation(damaged, config), path)

    assert is_accepted(original)
    assert not is_accepted(original[:1])
    for new in (None, 7, "x", [7], []):
        assert not is_accepted(new)
    for place in list_places(original):
        for new in (DELETED, *VALUES) if place else ():
            is_accepted(change(original, place, new))
    first = original[0]
    for key, new in {
        "count": 1,
        "range": (0, 9),
        "names": ["a"],
        "task": {**first["task"], "labels": ("a", 7)},
    }.items():
        assert not is_accepted([{**first, key: new}, *original[1:]]), key


def test_damaged_suites_settings_and_advice_are_explained(damaged: Path) -> None:
    def check(original: Any, read: Callable[[Any], Any]) -> None:
        values = itertools.cycle(VALUES)
        for place in itertools.islice(list_places(original), 1, None):
            with suppress(MotetError):
                read(change(original, place, next(values)))

    def read_advice(value: Any) -> None:
        write_json(damaged / "advice.json", value)
        load_settings(damaged)

    advice = json.loads(resources.files("motet.suites").joinpath(SHIPPED_RESULTS).read_text("utf-8"))
    setting = advice["settings"][0]
    first_method = dict(itertools.islice(setting["methods"].items(), 1))
    check({**advice, "settings": [{**setting, "methods": first_method, "bounds": first_method}]}, read_advice)
    check(parse_yaml(SUITE), lambda value: parse_suite("two", json.dumps(value)))
    check(load_recipe("toy-classification").to_dict(), lambda value: RunConfig.from_settings("toy", value))
