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
from motet.experiment.loop.metrics_log import write_json

TRACE = "traceback.txt"


class Store:
    """`done`: has a summary. `failed`: has a reason. Claimed: somebody holds its lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, name: str) -> Path:
        return self.folder / "runs" / name

    def done(self, name: str) -> bool:
        return (self.place(name) / "summary.json").exists()

    def count(self, names: Iterable[str]) -> int:
        return sum(self.done(name) for name in names)

    def summary(self, name: str) -> dict[str, Any] | None:
        return load_summary(self.place(name))

    def failure(self, name: str) -> str | None:
        path = self.place(name) / "failed.json"
        if self.done(name) or not path.exists():
            return None
        return str(json.loads(path.read_text("utf-8"))["why"])

    def fail(self, name: str, why: str) -> None:
        write_json(self.place(name) / "failed.json", {"why": why})

    def forgive(self, names: Iterable[str]) -> None:
        """What failed may be tried again."""
        for name in names:
            (self.place(name) / "failed.json").unlink(missing_ok=True)

    def settled(self, name: str) -> bool:
        return self.done(name) or self.failure(name) is not None

    @contextmanager
    def claimed(self, name: str) -> Iterator[bool]:
        """True for the one process that may carry out the run now. A process that is killed gives up its claims."""
        place = self.place(name)
        place.mkdir(parents=True, exist_ok=True)
        with (place / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield not self.settled(name)

    def tidy(self, name: str) -> None:
        """A finished run needs no checkpoint, no lock, and no word of why it failed before."""
        shutil.rmtree(self.place(name) / "checkpoint", ignore_errors=True)
        for left in ("lock", TRACE, "failed.json"):
            (self.place(name) / left).unlink(missing_ok=True)
