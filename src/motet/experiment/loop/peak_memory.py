"""Peak memory of a run: this process and its workers. Pages that they share count once."""

from __future__ import annotations

import threading
import time
from typing import Self

import psutil


class PeakMemory:
    """Measures memory in a background thread while it is open, with at most `max_share` of a core.

    The system walks the pages of every process, which takes 0.1 s if they have 5 GB.
    """

    def __init__(self, interval: float = 1.0, max_share: float = 0.01) -> None:
        self.interval, self.max_share, self.peak = interval, max_share, 0
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
        pause = self.interval
        while not self._closed.wait(pause):
            start = time.thread_time()
            self.measure()
            pause = self.pause_after(time.thread_time() - start)

    def pause_after(self, seconds: float) -> float:
        """Return how long to wait after a measurement that took this much processor time."""
        return max(self.interval, seconds / self.max_share)


def _memory(process: psutil.Process) -> int:
    """Return a process's proportional set size in bytes; where the system has none, its resident set size."""
    try:
        memory = process.memory_full_info()
        return int(getattr(memory, "pss", 0) or memory.rss)
    except psutil.Error:  # it ended, or belongs to someone else
        return 0
