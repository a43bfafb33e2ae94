"""The runs and benchmarks below a folder. Only what is listed here can be asked for, by its name."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from motet.benchmark.benchmark_folder import REQUEST_FILE, Benchmark, is_benchmark_folder, load_benchmark
from motet.core.errors import ConfigError, MotetError, RunError
from motet.dashboard.run_watch import RunWatch
from motet.experiment.commands.run_folder import is_served
from motet.missing_paths import describe_missing
from motet.report.run_status import read_status
from motet.transport.folder_lock import LOCK_FILE

MAX_DEPTH = 4  # runs/bench/SUITE/runs/NAME
SKIPPED_FOLDERS = {"checkpoint", "model", "baselines"}  # parts of a run
MAX_AGE = 1.0  # seconds for which several viewers share one look at the folder


def find_folders(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the runs and benchmarks below a folder, with their paths relative to it. Links are not followed."""
    pending = [(root, 0)]
    while pending:
        folder, depth = pending.pop()
        is_run = (folder / "config.yaml").is_file()
        if is_run or is_benchmark_folder(folder):
            name = root.name if folder == root else folder.relative_to(root).as_posix()
            yield name.encode(errors="replace").decode(), folder  # names of files need not be UTF-8
        if not is_run and depth < MAX_DEPTH:
            pending += [(child, depth + 1) for child in _list_folders(folder)]


def _list_folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [folder / name for name in names if not name.startswith(".") and name not in SKIPPED_FOLDERS]


def check_folder(root: Path) -> None:
    """Raise an error for a folder that has other things than runs. An empty one may get runs later, or just now."""
    if not root.is_dir():
        problem = f"'{root}' is a file." if root.exists() else describe_missing(root)
        raise ConfigError(f"{problem} Expected a folder with runs, such as runs.")
    other_files = (path for pattern in ("*", "*/*") for path in root.glob(pattern) if path.is_file())
    if any(path.name != LOCK_FILE for path in other_files) and not any(True for _ in find_folders(root)):
        raise ConfigError(
            f"'{root}' has no run: no folder in it has a config.yaml. Runs are in runs/<recipe>-<number>, "
            "or in the folder that was given as --out."
        )


class RunCatalog:
    """Finds runs and benchmarks, and remembers what it has read of them."""

    def __init__(self, root: Path, max_age: float = MAX_AGE) -> None:
        self.root, self.max_age = root.resolve(), max_age
        self._lock = threading.Lock()
        self._watches: dict[str, RunWatch] = {}
        self._benchmarks: dict[str, Benchmark | MotetError] = {}
        self._entries: list[dict[str, Any]] = []
        self._changed_at: dict[Path, int | None] = {}
        self._read_at = -math.inf

    def entries(self) -> list[dict[str, Any]]:
        """Return the facts of all runs and benchmarks, the last changed first."""
        with self._lock:
            if time.monotonic() - self._read_at > self.max_age:
                self._entries = self._read_entries()
                self._read_at = time.monotonic()
            return self._entries

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Return the status of each run, as `motet serve` writes it; of a run without a server, its progress."""
        runs = [entry for entry in self.entries() if entry["kind"] == "run"]
        return {entry["id"]: _read_status(self._watches[entry["id"]].folder, entry) for entry in runs}

    def run_folder(self, name: str) -> Path:
        """Return the folder of a run or of a baseline, such as "toy-1" or "toy-1/baselines/isolated"."""
        run, _, baseline = name.partition("/baselines/")
        self._require(run, "run")
        folder = self._watches[run].folder
        if not baseline:
            return folder
        folders = {path.name: path for path in folder.glob("baselines/*") if (path / "config.yaml").is_file()}
        if baseline not in folders:
            raise ConfigError(f"run '{run}' has no baseline '{baseline}'; it has: {', '.join(folders) or 'none'}.")
        return folders[baseline]

    def benchmark(self, name: str) -> Benchmark:
        self._require(name, "benchmark")
        benchmark = self._benchmarks[name]
        if isinstance(benchmark, MotetError):
            raise benchmark
        return benchmark

    def _require(self, name: str, kind: str) -> None:
        self.entries()
        if name not in (self._watches if kind == "run" else self._benchmarks):
            raise ConfigError(f"there is no {kind} '{name}' in this folder. The start page lists all of them.")

    def _read_entries(self) -> list[dict[str, Any]]:
        folders = dict(find_folders(self.root))
        benchmarks = {name: path for name, path in folders.items() if is_benchmark_folder(path)}
        runs = {name: path for name, path in folders.items() if name not in benchmarks}
        self._watches = {name: self._watch(name, path) for name, path in runs.items()}
        self._benchmarks = {name: self._open_benchmark(name, path) for name, path in benchmarks.items()}
        entries = [{"kind": "run", "id": name, **watch.read()} for name, watch in self._watches.items()]
        states = {watch.folder: entry["state"] for watch, entry in zip(self._watches.values(), entries, strict=True)}
        for entry, watch in zip(entries, self._watches.values(), strict=True):
            entry["benchmark"] = next((n for n, path in benchmarks.items() if path in watch.folder.parents), None)
        entries += [_describe_benchmark(name, each, states) for name, each in self._benchmarks.items()]
        return sorted(entries, key=lambda entry: (-entry["updated"], entry["id"]))

    def _watch(self, name: str, folder: Path) -> RunWatch:
        """Return what is known of a run, unless another run has taken its folder."""
        is_known = not self._is_replaced(folder / "config.yaml") and name in self._watches
        return self._watches[name] if is_known else RunWatch(folder)

    def _open_benchmark(self, name: str, folder: Path) -> Benchmark | MotetError:
        is_known = not self._is_replaced(folder / REQUEST_FILE) and name in self._benchmarks
        if is_known and isinstance(self._benchmarks[name], Benchmark):
            return self._benchmarks[name]
        try:
            return load_benchmark(folder)
        except MotetError as error:
            return error
        except (OSError, ValueError) as error:  # the copy of the suite is missing, or not text
            return RunError(f"'{folder}' cannot be read: {error}.")

    def _is_replaced(self, file: Path) -> bool:
        """Return True if a file has changed since the last call."""
        before, now = self._changed_at.get(file), file.stat().st_mtime_ns if file.exists() else None
        self._changed_at[file] = now
        return before != now


def _read_status(folder: Path, entry: dict[str, Any]) -> dict[str, Any]:
    if is_served(folder):
        with suppress(MotetError, OSError, ValueError):  # being written, or damaged
            return read_status(str(folder))
    scores = {entry.get("metric"): entry.get("score"), "epsilon": entry.get("epsilon")}
    status = {"rounds": entry.get("rounds"), "done": entry.get("round"), "state": entry["state"]}
    return {**status, "scores": {name: value for name, value in scores.items() if name and value is not None}}


def _describe_benchmark(name: str, benchmark: Benchmark | MotetError, states: dict[Path, str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": "benchmark", "id": name, "updated": 0.0}
    try:
        if isinstance(benchmark, MotetError):
            raise benchmark
        folders = [benchmark.store.run_folder(run) for run in benchmark.runs]
        entry |= {"title": benchmark.title, "updated": _newest(folders)}
    except MotetError as error:
        return {**entry, "state": "failed", "reason": str(error)}
    counts = {state: sum(states.get(folder) == state for folder in folders) for state in set(states.values())}
    counts |= {"all": len(folders)}
    is_done = counts.get("finished") == len(folders)
    state = "running" if counts.get("running") else "finished" if is_done else "interrupted"
    return {**entry, "state": state, "counts": counts}


def _newest(folders: list[Path]) -> float:
    return max((folder.stat().st_mtime for folder in folders if folder.exists()), default=0.0)
