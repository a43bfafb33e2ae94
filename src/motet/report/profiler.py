"""Where the time of a process goes: named spans of one thread, each with a category.

A span may contain others. The time of a category counts only what no inner span counts, so the categories and "other"
sum to the whole time. Without an active profiler, `span` does nothing.
"""

from __future__ import annotations

import functools
import importlib.machinery
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

CATEGORIES = ("import", "data", "model", "first step", "training", "evaluation", "saving", "other")
ROUND, AFTER_ROUND = "round", "after_round"  # details of a span that is a round, or belongs to the last one
WAIT = "wait for jobs"  # the name of spans in which the driver waits for the executor
MAX_SPANS = 100_000  # more are counted, but not kept
MAX_WAITS = 1000  # from which the usual time of a job is computed
SHORTEST_IMPORT = 0.001  # seconds; shorter imports count as part of the module that imports them
_LOADERS = (importlib.machinery.SourceFileLoader, importlib.machinery.ExtensionFileLoader)


@dataclass(slots=True)
class Span:
    """A part of the time, in seconds since the start. `own_seconds` leaves out the spans inside."""

    name: str
    category: str
    start: float
    seconds: float = 0.0
    own_seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass
class RoundTimes:
    """Seconds of one round: waiting for the clients' jobs, the server's own work, evaluation and saving."""

    name: str
    start: float
    clients: float = 0.0
    server: float = 0.0
    evaluation: float = 0.0
    saving: float = 0.0


class Profiler:
    """Records the spans of the thread that creates it, from `started_at` (of `time.perf_counter`) on.

    At most `max_spans` are kept. All of them count for the breakdown and the times of rounds.
    """

    def __init__(self, started_at: float | None = None, max_spans: int = MAX_SPANS) -> None:
        self.max_spans = max_spans
        self.started_at = time.perf_counter() if started_at is None else started_at
        self.spans: list[Span] = []
        self.rounds: list[RoundTimes] = []
        self.dropped = 0
        self._waits: list[float] = []  # seconds of the first waits for training jobs
        self._thread = threading.get_ident()
        self._open: list[Span] = []
        self._totals: dict[str, float] = defaultdict(float)
        self._finished_at: float | None = None

    @property
    def seconds(self) -> float:
        """The whole time so far or, after `finish`, until then."""
        return (time.perf_counter() if self._finished_at is None else self._finished_at) - self.started_at

    def finish(self) -> None:
        self._finished_at = self._finished_at or time.perf_counter()

    @contextmanager
    def open_span(self, name: str, category: str, details: dict[str, Any], shortest: float = 0.0) -> Iterator[None]:
        """Record the block as a span of a category. A span shorter than `shortest` counts, but is not kept."""
        if threading.get_ident() != self._thread:
            yield
            return
        current = Span(name, category or self._current_category, self.seconds, details=details)
        self._open.append(current)
        if ROUND in details:
            self.rounds.append(RoundTimes(str(details[ROUND]), current.start))
        try:
            yield
        finally:
            self._open.pop()
            current.seconds = self.seconds - current.start
            self._add(current, is_kept=current.seconds >= shortest)

    @property
    def _current_category(self) -> str:
        return self._open[-1].category if self._open else "other"

    def add_start(self, name: str, category: str) -> None:
        """Count everything until now, such as the start of Python, as one span."""
        self._add(Span(name, category, 0.0, self.seconds), is_kept=True)

    def _add(self, span: Span, is_kept: bool) -> None:
        span.own_seconds += span.seconds
        self._totals[span.category] += span.own_seconds
        if self._open:
            self._open[-1].own_seconds -= span.seconds
        self._add_to_round(span)
        if is_kept and len(self.spans) < self.max_spans:
            self.spans.append(span)
        else:
            self.dropped += is_kept

    def _add_to_round(self, span: Span) -> None:
        """Count a span for the last round: waiting for its clients, and its evaluation and checkpoint afterwards."""
        if not self.rounds:
            return
        times = self.rounds[-1]
        if span.name == WAIT and span.category == "training":
            self._waits += [span.seconds] if len(self._waits) < MAX_WAITS else []
            times.clients += span.seconds
        elif ROUND in span.details:
            times.server = span.seconds - times.clients
        elif AFTER_ROUND in span.details and span.category == "evaluation":
            times.evaluation += span.seconds
        elif AFTER_ROUND in span.details:
            times.saving += span.seconds

    @property
    def first_step_seconds(self) -> float:
        """How much longer the first training jobs took than the median of the others.

        In this time workers start, kernels are compiled and graphs are captured.
        """
        return max(0.0, self._waits[0] - median(self._waits[1:])) if len(self._waits) > 1 else 0.0

    def breakdown(self) -> dict[str, float]:
        """Return the seconds of each category. They sum to `seconds`."""
        totals = {name: self._totals.get(name, 0.0) for name in CATEGORIES}
        totals["first step"] = self.first_step_seconds
        totals["training"] -= self.first_step_seconds
        totals["other"] += self.seconds - sum(totals.values())
        return totals


_active: Profiler | None = None


def span(name: str, category: str, **details: Any) -> AbstractContextManager[None]:
    """Record the block as a span, if a profiler is active. `details` appear in the trace.

    An empty category is that of the span around it.
    """
    return nullcontext() if _active is None else _active.open_span(name, category, details)


def is_profiling() -> bool:
    return _active is not None


@contextmanager
def activate(profiler: Profiler) -> Iterator[Profiler]:
    """Record spans and imports in the block."""
    global _active  # noqa: PLW0603 - one profiler for the process, as spans are opened in many places
    previous, _active = _active, profiler
    originals = [(loader, loader.exec_module) for loader in _LOADERS]
    for loader, original in originals:
        loader.exec_module = _timed_import(profiler, original)  # type: ignore[method-assign]
    try:
        yield profiler
    finally:
        _active = previous
        for loader, original in originals:
            loader.exec_module = original  # type: ignore[method-assign]
        profiler.finish()


def _timed_import(profiler: Profiler, execute: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(execute)
    def execute_timed(loader: Any, module: Any) -> None:
        with profiler.open_span(f"import {module.__name__}", "import", {}, SHORTEST_IMPORT):
            execute(loader, module)

    return execute_timed


def process_start() -> float:
    """Return when this process started, on the clock of `time.perf_counter`."""
    stat = Path("/proc/self/stat")
    if stat.exists():  # exact to a hundredth of a second; psutil rounds the boot time to seconds
        ticks = int(stat.read_text().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    else:
        import psutil

        age = time.time() - psutil.Process().create_time()
    return time.perf_counter() - age
