"""Peak memory of a run: this process and its workers. Pages that they share count once."""

from __future__ import annotations

import threading
from typing import Self

import psutil


class PeakMemory:
    """Measures memory in a background thread while it is open."""

    def __init__(self, interval: float = 1.0) -> None:
        self.interval, self.peak = interval, 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._measure_repeatedly, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.measure()
        self._closed.set()

    def measure(self) -> int:
        """Measure now, and return the peak so far in bytes."""
        current = psutil.Process()
        self.peak = max(self.peak, sum(_memory(process) for process in (current, *current.children())))
        return self.peak

    def _measure_repeatedly(self) -> None:
        while not self._closed.wait(self.interval):
            self.measure()


def _memory(process: psutil.Process) -> int:
    """Return a process's proportional set size in bytes; where the system has none, its resident set size."""
    try:
        memory = process.memory_full_info()
        return int(getattr(memory, "pss", 0) or memory.rss)
    except psutil.Error:  # it ended, or belongs to someone else
        return 0
