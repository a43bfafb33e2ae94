"""`motet` in processes of its own that start fast.

An import of torch and transformers takes seconds. A server process of this test session does it once, and every
process is a fork of it. A process can be killed and interrupted like one that a shell starts.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from motet.experiment.loop.metrics_tail import MetricsTail

PRELOADED = [
    "motet.cli",
    "motet.experiment.commands.recipe_runner",
    "transformers.models.bert.modeling_bert",
    "matplotlib.figure",
]
_FORKSERVER = multiprocessing.get_context("forkserver")
_FORKSERVER.set_forkserver_preload(PRELOADED)


class MotetProcess:
    """A `motet` command that runs in the background, with the interface of `subprocess.Popen`.

    The process calls `prepare`, a function of a module, before the command.
    """

    def __init__(
        self,
        *arguments: str,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        errors_to_output: bool = False,
        prepare: Callable[[], None] | None = None,
    ):
        self._folder = tempfile.TemporaryDirectory()
        self._out = Path(self._folder.name) / "out"
        self._err = self._out if errors_to_output else Path(self._folder.name) / "err"
        options = (arguments, str(folder or Path.cwd()), {**os.environ, **(environment or {})}, self._out, self._err)
        self._process: Any = _FORKSERVER.Process(target=_run_motet, args=(prepare, *options))
        self._process.start()
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("motet", timeout or 0.0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end, and return what the process printed: its output and its errors."""
        self.wait(timeout)
        return self.read_output()

    def read_output(self) -> tuple[str, str]:
        """Return what the process has printed so far: its output and its errors."""
        return tuple(path.read_text() if path.exists() else "" for path in (self._out, self._err))  # type: ignore[return-value]

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self._process.kill()
        self._process.join()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def wait_until(condition: Callable[[], object], *processes: MotetProcess) -> None:
    """Wait for a condition, and fail if one of the processes fails meanwhile."""
    deadline = time.monotonic() + 300
    while not condition():
        for process in processes:
            assert process.poll() in (None, 0), process.communicate()
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.02)


def wait_for_rounds(folder: Path, rounds: int, *processes: MotetProcess) -> None:
    """Wait until a run has finished so many rounds."""
    wait_until(lambda: count_rounds(folder) >= rounds, *processes)


def count_rounds(folder: Path) -> int:
    """Return the last round in a run's metrics."""
    return max((row["round"] for row in MetricsTail(folder).read()), default=0)


def _run_motet(
    prepare: Callable[[], None] | None,
    arguments: tuple[str, ...],
    folder: str,
    environment: dict[str, str],
    out: Path,
    err: Path,
) -> None:
    for path, descriptor in ((out, 1), (err, 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if prepare is not None:
        prepare()
    sys.argv = ["motet", *arguments]
    from motet.cli import main

    try:
        main()
    finally:
        atexit._run_exitfuncs()  # multiprocessing skips them
