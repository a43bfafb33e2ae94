"""A folder has one live process at a time, and is free again as soon as that process is gone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from motet.core.errors import ConfigError, RunError
from motet.experiment.commands.run_folder import claim_folder, create_new_folder, require_empty
from motet.experiment.loop.metrics_log import MetricsLog
from motet.privacy.accountant_log import AccountantLog
from motet.transport.folder_lock import LOCK_FILE, find_lock_owner, lock_folder
from motet.transport.traffic import Traffic

HOLD_LOCK = """
import sys
from pathlib import Path
from motet.transport.folder_lock import lock_folder
with lock_folder(Path(sys.argv[1])) as is_claimed:
    print("locked" if is_claimed else "taken", flush=True)
    sys.stdin.read()
"""


@contextmanager
def other_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that tries to lock the folder, and keeps it until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_folder_belongs_to_one_process_until_it_is_killed(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        assert first_line(process) == "locked"
        assert f"process {process.pid} on " in (find_lock_owner(tmp_path) or "")
        with lock_folder(tmp_path) as is_claimed:
            assert not is_claimed
        message = rf"in use by process {process.pid} on .* choose another --out"
        with pytest.raises(ConfigError, match=message), claim_folder(tmp_path):
            raise AssertionError("the folder was claimed twice")
    assert (tmp_path / LOCK_FILE).exists()  # kill -9 leaves the file, but not the lock
    assert find_lock_owner(tmp_path) is None
    require_empty(tmp_path)
    with claim_folder(tmp_path):
        assert find_lock_owner(tmp_path) is not None
        with other_process(tmp_path) as process:
            assert first_line(process) == "taken"
    assert not (tmp_path / LOCK_FILE).exists()


def test_one_process_cannot_claim_a_folder_twice(tmp_path: Path) -> None:
    with claim_folder(tmp_path), pytest.raises(ConfigError, match="in use"), claim_folder(tmp_path):
        raise AssertionError("the folder was claimed twice")


def test_a_claim_leaves_no_empty_folders_behind(tmp_path: Path) -> None:
    with claim_folder(tmp_path / "runs" / "a"):
        pass
    assert list(tmp_path.iterdir()) == []
    with claim_folder(tmp_path / "runs" / "a"):
        (tmp_path / "runs" / "a" / "config.yaml").touch()
    assert [path.name for path in (tmp_path / "runs" / "a").iterdir()] == ["config.yaml"]


def test_a_file_is_not_a_run_folder(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.touch()
    with pytest.raises(ConfigError, match="is a file; expected a folder"), claim_folder(path):
        pass


def test_two_runs_without_out_get_different_folders(tmp_path: Path) -> None:
    assert [create_new_folder("toy", tmp_path).name for _ in range(3)] == ["toy-1", "toy-2", "toy-3"]


def test_a_folder_from_someone_else_changes_no_file_outside_of_it(tmp_path: Path) -> None:
    """The lock, the metrics and the accountant's log were once written through links, and the lock's target deleted."""
    own, folder, other = tmp_path / "own.txt", tmp_path / "run", tmp_path / "other"
    own.write_text("mine")
    other.mkdir()
    (other / ".draft.part").write_text("mine")
    folder.mkdir()
    (folder / "other").symlink_to(other)
    with lock_folder(folder):
        pass
    for name in (LOCK_FILE, "metrics.jsonl", "accountant.jsonl"):
        (folder / name).symlink_to(own)
    with pytest.raises(RunError, match=r"run\.lock' is a link; expected a file"), lock_folder(folder):
        pass
    with pytest.raises(RunError, match="is a link"):
        find_lock_owner(folder)
    with pytest.raises(RunError, match="is a link"):
        MetricsLog(folder).add(1, "server", "global", {"accuracy": 0.5}, Traffic())
    with pytest.raises(RunError, match="is a link"):
        MetricsLog(folder).resume(0, 0.0)
    with pytest.raises(RunError, match="is a link"):
        AccountantLog(folder / "accountant.jsonl").append("1", ["north"])
    assert own.read_text() == "mine"
    assert (other / ".draft.part").exists()
