"""Where a benchmark keeps its runs: a folder each, named by what the run is; claimed by a lock that dies with its process."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from motet.experiment.commands.run_folder import load_summary
from motet.experiment.loop.json_files import write_json

TRACEBACK_FILE = "traceback.txt"


class RunStore:
    """`done`: has a summary. `failed`: has a reason. Claimed: somebody holds its lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run_folder(self, name: str) -> Path:
        return self.folder / "runs" / name

    def is_done(self, name: str) -> bool:
        return (self.run_folder(name) / "summary.json").exists()

    def count(self, names: Iterable[str]) -> int:
        return sum(self.is_done(name) for name in names)

    def summary(self, name: str) -> dict[str, Any] | None:
        return load_summary(self.run_folder(name))

    def failure(self, name: str) -> str | None:
        path = self.run_folder(name) / "failed.json"
        if self.is_done(name) or not path.exists():
            return None
        return str(json.loads(path.read_text("utf-8"))["why"])

    def record_failure(self, name: str, why: str) -> None:
        write_json(self.run_folder(name) / "failed.json", {"why": why})

    def clear_failures(self, names: Iterable[str]) -> None:
        """What failed may be tried again."""
        for name in names:
            (self.run_folder(name) / "failed.json").unlink(missing_ok=True)

    def is_settled(self, name: str) -> bool:
        return self.is_done(name) or self.failure(name) is not None

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        """True for the one process that may carry out the run now. A process that is killed gives up its claims."""
        place = self.run_folder(name)
        place.mkdir(parents=True, exist_ok=True)
        with (place / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield not self.is_settled(name)

    def clean_up(self, name: str) -> None:
        """A finished run needs no checkpoint, no lock, and no word of why it failed before."""
        shutil.rmtree(self.run_folder(name) / "checkpoint", ignore_errors=True)
        for left in ("lock", TRACEBACK_FILE, "failed.json"):
            (self.run_folder(name) / left).unlink(missing_ok=True)
