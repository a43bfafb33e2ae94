"""The state of a run: in progress, finished, failed or interrupted, and its progress. Reads only its folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from motet.core.errors import ConfigError, MotetError, first_line
from motet.experiment.commands.run_folder import is_finished, is_served, is_started, load_config, resume_command
from motet.experiment.commands.run_records import FailureRecord
from motet.experiment.loop.metrics_tail import MetricsTail
from motet.report.run_status import read_status
from motet.transport.folder_lock import find_lock_owner
from motet.transport.json_files import read_json, write_json

FAILURE_FILE = "failed.json"

StateName = Literal["running", "waiting", "finished", "failed", "interrupted"]


class RunState(NamedTuple):
    """The state of a run. `reason` says why it failed."""

    name: StateName
    reason: str = ""


def read_run_state(folder: Path) -> RunState:
    """Return the state of a run or of a baseline. A baseline belongs to the process that has the folder of its run."""
    if is_finished(folder):
        return RunState("finished")
    is_baseline = folder.parent.name == "baselines"
    if find_lock_owner(folder.parents[1] if is_baseline else folder) is not None:
        return RunState("running" if (folder / "metrics.jsonl").exists() or not is_baseline else "waiting")
    reason = read_failure(folder)
    return RunState("interrupted") if reason is None else RunState("failed", reason)


def advise_progress(folder: Path) -> str:
    """Return what to do if a run has too few rounds for a command."""
    if read_run_state(folder).name in ("running", "waiting"):
        return "It is in progress: try again after its next round."
    return f"Continue it: {resume_command(folder)}"


def describe_state(source: str, token: str = "") -> dict[str, Any]:
    """Return the status of a run: of a served one as its server wrote it, of another one from its files."""
    folder = Path(source)
    if not is_started(folder) or is_served(folder):
        return read_status(source, token)
    name, reason = read_run_state(folder)
    config = load_config(folder)
    rounds = [row["round"] for row in MetricsTail(folder).read()]
    return {
        "run": config.recipe,
        "state": f"{name}: {reason}" if reason else name,
        "rounds": config.rounds,
        "done": max(rounds, default=0),
    }


def read_failure(folder: Path) -> str | None:
    """Return why a run failed; None if it did not fail."""
    record: dict[str, Any] | None = read_json(folder / FAILURE_FILE, FailureRecord)
    return None if record is None or is_finished(folder) else str(record["why"])


def lacked_memory(folder: Path) -> bool:
    """Return whether a run failed because the device's memory was too small for it and the runs beside it."""
    record: dict[str, Any] | None = read_json(folder / FAILURE_FILE, FailureRecord)
    return record is not None and bool(record.get("lacked_memory"))


def write_failure(folder: Path, reason: str, lacked_memory: bool = False) -> None:
    write_json(folder / FAILURE_FILE, {"why": reason, "lacked_memory": lacked_memory})


def clear_failure(folder: Path) -> None:
    """Forget a failure, because the run is tried again."""
    (folder / FAILURE_FILE).unlink(missing_ok=True)


@contextmanager
def record_failure(folder: Path, *, is_retry: bool) -> Iterator[None]:
    """Write down why the run in the block failed. A configuration that was rejected is not a run that failed."""
    if is_retry:
        clear_failure(folder)
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        if is_started(folder):
            write_failure(folder, str(error) if isinstance(error, MotetError) else first_line(error))
        raise
