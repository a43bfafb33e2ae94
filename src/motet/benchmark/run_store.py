"""The runs of a benchmark on disk: one folder per run, claimed with a file lock that ends with its process."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from motet.benchmark.cells import BenchmarkRun, run_name
from motet.core.errors import ConfigError
from motet.experiment.commands.environment import describe_software, package_versions
from motet.experiment.commands.run_folder import is_finished, is_started, load_config, load_summary
from motet.experiment.commands.run_state import clear_failure, lacked_memory, read_failure, write_failure
from motet.transport.folder_lock import find_lock_owner, lock_folder

TRACEBACK_FILE = "traceback.txt"


class RunStore:
    """Knows the state of each run: done (has a summary), failed (has a reason), or claimed (its lock is held)."""

    def __init__(self, folder: Path, renamed_runs: Mapping[str, Path] | None = None) -> None:
        self.folder, self.renamed_runs = folder, renamed_runs or {}

    def run_folder(self, name: str) -> Path:
        return self.renamed_runs.get(name, self.folder / "runs" / name)

    def is_done(self, name: str) -> bool:
        return is_finished(self.run_folder(name))

    def is_settled(self, name: str) -> bool:
        """Return whether the run is done or has failed."""
        return self.is_done(name) or self.failure(name) is not None

    def count_done(self, names: Iterable[str]) -> int:
        return sum(self.is_done(name) for name in names)

    def summary(self, name: str) -> dict[str, Any] | None:
        return load_summary(self.run_folder(name))

    def finished(self, runs: Mapping[str, BenchmarkRun]) -> Iterator[tuple[BenchmarkRun, float]]:
        """Yield each run that is done, with the seconds it took."""
        for name, run in runs.items():
            if (summary := self.summary(name)) is not None:
                yield run, float(summary["seconds"])

    def finished_labels(self) -> set[str]:
        """Return the labels of all finished runs in the folder, also of those that the suite no longer has."""
        folders = [path.parent for path in (self.folder / "runs").glob("*/summary.json")]
        return {str(summary["recipe"]) for folder in folders if (summary := load_summary(folder)) is not None}

    def software(self, name: str) -> str:
        """Return the version and commit of Motet that a finished run was made with."""
        return describe_software((self.summary(name) or {}).get("versions", {}))

    def remove_outdated(self, names: Iterable[str]) -> list[str]:
        """Remove the finished runs of other versions, so that they run again. Return their names."""
        current = describe_software(package_versions())
        outdated = [name for name in names if self.is_done(name) and self.software(name) != current]
        for name in outdated:
            shutil.rmtree(self.run_folder(name))
        return outdated

    def failure(self, name: str) -> str | None:
        """Return why the run failed, or None if it did not fail."""
        return read_failure(self.run_folder(name))

    def lacked_memory(self, name: str) -> bool:
        """Return whether the run failed because it did not fit into the memory beside others."""
        return self.failure(name) is not None and lacked_memory(self.run_folder(name))

    def record_failure(self, name: str, reason: str, lacked_memory: bool = False) -> None:
        write_failure(self.run_folder(name), reason, lacked_memory)

    def clear_failures(self, names: Iterable[str]) -> None:
        """Let failed runs be tried again."""
        for name in names:
            clear_failure(self.run_folder(name))

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        """Yield True if this process may execute the run now. The claim ends with the block or with the process."""
        with lock_folder(self.run_folder(name)) as is_claimed:
            yield is_claimed and not self.is_settled(name)

    def is_claimed(self, name: str) -> bool:
        return find_lock_owner(self.run_folder(name)) is not None

    def clean_up(self, name: str) -> None:
        """Delete what a finished run no longer needs: its checkpoint and earlier failures."""
        shutil.rmtree(self.run_folder(name) / "checkpoint", ignore_errors=True)
        (self.run_folder(name) / TRACEBACK_FILE).unlink(missing_ok=True)
        clear_failure(self.run_folder(name))


def find_renamed_runs(folder: Path, names: Collection[str]) -> dict[str, Path]:
    """Return the folders of runs that an older version stored under other names, by their current names.

    The name of a run changes when a new version renames or adds recipe keys. A run that was evaluated on the test set can
    serve as a trial, which is not: it has the same scores on the development set.
    """
    renamed_runs = {}
    for path in sorted((folder / "runs").glob("*/config.yaml")):
        if path.parent.name not in names:
            try:
                config = load_config(path.parent)
            except ConfigError:
                continue  # the run of another suite, or of a method that no longer exists
            for current in (config, replace(config, evaluation=replace(config.evaluation, test=False))):
                name = run_name(current)
                if name in names and not is_started(folder / "runs" / name):
                    renamed_runs[name] = path.parent
    return renamed_runs
