"""An executor whose waiting time a profiler records."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch

from motet.core.work import Executor, Job
from motet.report.profiler import WAIT, is_profiling, span


class TracedExecutor(Executor):
    """Wraps an executor. The spans show how long the driver waits for jobs, in workers or in this process."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    @property
    def capacity(self) -> int:
        return self.executor.capacity

    @property
    def examples_processed(self) -> int:
        return self.executor.examples_processed

    @property
    def device(self) -> torch.device:
        return self.executor.device

    def submit(self, key: Hashable, job: Job) -> None:
        self.executor.submit(key, job)

    def wait_completed(self) -> Sequence[tuple[Hashable, Any]]:
        with span(WAIT, ""):
            return self.executor.wait_completed()

    def run(self, job: Job) -> Any:
        with span(f"server job: {type(job).__name__}", ""):
            return self.executor.run(job)

    def close(self) -> None:
        with span("stop workers", "other"):
            self.executor.close()


def trace_executor(executor: Executor) -> Executor:
    """Return the executor, wrapped if a profiler is active."""
    return TracedExecutor(executor) if is_profiling() else executor


def unwrap_executor(executor: Executor) -> Executor:
    """Return the executor that `trace_executor` was given."""
    return executor.executor if isinstance(executor, TracedExecutor) else executor
