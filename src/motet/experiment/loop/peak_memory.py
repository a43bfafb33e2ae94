"""How much memory a run really takes: this process and its workers, pages they share counted once."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path
from typing import Self


class PeakMemory:
    """Looks once a second, in a thread of its own, for as long as it is open."""

    def __init__(self, every: float = 1.0) -> None:
        self.every, self.peak = every, 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.look()
        self.stop.set()

    def look(self) -> int:
        self.peak = max(self.peak, sum(_proportional(pid) for pid in _family()))
        if not self.peak:  # no /proc: the high-water mark of this process alone
            self.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return self.peak

    def _watch(self) -> None:
        while not self.stop.wait(self.every):
            self.look()


def _family() -> list[int]:
    me = os.getpid()
    try:
        children = Path(f"/proc/{me}/task/{me}/children").read_text().split()
    except OSError:
        return [me]
    return [me, *map(int, children)]


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
