"""Profiles: the parts sum to the whole, the trace opens in Perfetto, and nothing is recorded without a profiler."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import motet
from motet.experiment.build.federation import Federation
from motet.report import profile_files
from motet.report import profiler as profiler_module
from motet.report.profile_files import describe_bytecode, describe_rounds
from motet.report.profiler import CATEGORIES, WAIT, Profiler, activate, process_start, span


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that tests advance."""
    now = [0.0]
    monkeypatch.setattr(profiler_module.time, "perf_counter", lambda: now[0])
    return now


def test_the_time_of_a_span_does_not_count_what_spans_inside_count(clock: list[float]) -> None:
    with activate(Profiler()) as profile:
        clock[0] = 1.0
        with span("federation", "data"):
            clock[0] = 3.0
            with span("model", "model"):
                clock[0] = 7.0
        clock[0] = 7.5
    assert profile.breakdown() == dict.fromkeys(CATEGORIES, 0.0) | {"data": 2.0, "model": 4.0, "other": 1.5}
    assert profile.seconds == 7.5


def test_rounds_are_divided_into_clients_and_server_and_the_first_jobs_into_warm_up_and_training(
    clock: list[float],
) -> None:
    with activate(Profiler()) as profile:
        for number, wait in enumerate((5.0, 2.0, 2.0), 1):
            with span(f"round {number}", "training", round=number):
                with span(WAIT, ""):
                    clock[0] += wait
                clock[0] += 0.5
            with span("evaluate", "evaluation", after_round=number), span(WAIT, ""):
                clock[0] += 1.0
    assert [(t.clients, t.server, t.evaluation) for t in profile.rounds] == [(5, 0.5, 1), (2, 0.5, 1), (2, 0.5, 1)]
    assert {k: v for k, v in profile.breakdown().items() if v} == {
        "first step": 3.0, "training": 7.5, "evaluation": 3.0,
    }  # fmt: skip
    assert "The server itself took 14.3 % of the rounds." in describe_rounds(profile)


def test_only_the_profiled_thread_is_recorded_and_only_while_a_profiler_is_active() -> None:
    with activate(Profiler()) as profile:
        thread = threading.Thread(target=lambda: span("elsewhere", "data").__enter__())
        thread.start()
        thread.join()
    with span("later", "data"):
        pass
    assert profile.spans == []


def test_imports_are_recorded_and_the_loaders_are_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_module.py").write_text("import time; time.sleep(0.01)")
    monkeypatch.syspath_prepend(tmp_path)
    before = [loader.exec_module for loader in profiler_module._LOADERS]
    with activate(Profiler()) as profile:
        importlib.import_module("slow_module")
    del sys.modules["slow_module"]
    assert [s.name for s in profile.spans] == ["import slow_module"]
    assert profile.breakdown()["import"] >= 0.01
    assert [loader.exec_module for loader in profiler_module._LOADERS] == before


def test_more_spans_than_a_trace_holds_still_count(clock: list[float]) -> None:
    with activate(Profiler(max_spans=2)) as profile:
        for _ in range(5):
            with span("read", "data"):
                clock[0] += 1
    assert (len(profile.spans), profile.dropped, profile.breakdown()["data"]) == (2, 3, 5.0)


def test_waits_of_many_jobs_take_no_more_memory(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler_module, "MAX_WAITS", 3)
    with activate(Profiler(max_spans=0)) as profile, span("round 1", "training", round=1):
        for seconds in (5, 1, 1, 1, 1):
            with span(WAIT, ""):
                clock[0] += seconds
    assert (len(profile.spans), len(profile._waits)) == (0, 3)
    assert (profile.rounds[0].clients, profile.first_step_seconds) == (9.0, 4.0)


def test_a_process_starts_before_now() -> None:
    assert 0 < time.perf_counter() - process_start() < 1e7


def test_a_python_run_can_be_profiled(federation: Federation, tmp_path: Path) -> None:
    with motet.profile(tmp_path) as profile:
        motet.run(federation, "fedavg", rounds=2, cohort=2, workers=0)
    parts = profile.breakdown()
    assert sum(parts.values()) == pytest.approx(profile.seconds)
    assert min(parts["training"], parts["evaluation"], parts["model"]) > 0
    assert len(profile.rounds) == 2
    events = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert {"round 1", "round 2", "fedavg.train", WAIT} <= {event["name"] for event in events}
    assert all(event["ts"] >= 0 and event["dur"] >= 0 and event["pid"] for event in events)
    assert (tmp_path / "profile.png").read_bytes().startswith(b"\x89PNG")


def test_a_profile_names_packages_that_python_compiles_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_files, "LARGE_PACKAGES", ("large_package",))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "large_package").mkdir()
    (tmp_path / "large_package" / "__init__.py").touch()
    assert describe_bytecode() == ""
    importlib.import_module("large_package")
    command = describe_bytecode().partition("Write them once: python ")[2]
    subprocess.run([sys.executable, *command.split()], check=True)
    assert describe_bytecode() == ""
    del sys.modules["large_package"]
