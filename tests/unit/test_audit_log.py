"""The audit log of a client: append-only, with a chain of hashes that shows every change."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from motet.cli.policy import audit
from motet.core.errors import ConfigError
from motet.experiment.deploy.audit_log import FIRST_HASH, AuditLog, format_entry, read_audit_log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log with three lines."""
    log = AuditLog(tmp_path / "north" / "audit.jsonl", clock=lambda: 1_700_000_000.0)
    log.append("joined", run="0123abcd", server="fl.example.org:8443")
    log.append("asked", run="0123abcd", round=0, method="fedavg.train", digest="a" * 64, epsilon=1.25)
    log.append("sent", run="0123abcd", round=0, method="fedavg.train", bytes=1200)
    log.close()
    return log.path


def test_lines_are_appended_and_survive_a_restart(path: Path) -> None:
    log = AuditLog(path)
    log.append("refused", run="0123abcd", reason="too early")
    log.close()
    entries = read_audit_log(path)
    assert [entry["event"] for entry in entries] == ["joined", "asked", "sent", "refused"]
    assert entries[0]["previous"] == FIRST_HASH
    assert entries[-1]["hash"] == log.head
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("change", ["edit", "delete", "swap", "insert", "garbage"])
def test_every_change_breaks_the_chain(path: Path, change: str) -> None:
    first, second, third = path.read_text().splitlines()
    edited = json.dumps({**json.loads(second), "epsilon": 0.5})
    lines = {
        "edit": [first, edited, third],
        "delete": [first, third],
        "swap": [second, first, third],
        "insert": [first, second, second, third],
        "garbage": [first, "{}", third],
    }[change]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match="the chain of hashes is broken"):
        read_audit_log(path)
    with pytest.raises(ConfigError, match="Keep the file as evidence"):
        AuditLog(path)


class Context:
    invoked_subcommand = None


def test_a_line_that_a_crash_left_unfinished_is_no_change_and_is_removed(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with path.open("a") as file:
        file.write('{"time": 17000')
    assert len(read_audit_log(path)) == 3  # nobody has changed it
    audit(Context(), path)  # type: ignore[arg-type]
    assert "The last line is unfinished" in capsys.readouterr().out
    log = AuditLog(path)
    log.append("sent", run="0123abcd", bytes=1)
    log.close()
    assert [entry["event"] for entry in read_audit_log(path)] == ["joined", "asked", "sent", "sent"]


def test_the_command_verifies_and_prints_the_log(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit(Context(), path.parent.parent)  # type: ignore[arg-type]
    output = capsys.readouterr().out
    assert "3 lines, the chain of hashes is intact" in output
    assert "unfinished" not in output
    assert "asked    run 0123abcd, round 0, method fedavg.train, digest aaaaaaaaaaaa…, epsilon 1.25" in output
    head = read_audit_log(path)[-1]["hash"]
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(SystemExit):
        audit(Context(), path, head)  # type: ignore[arg-type]
    assert "lines were removed" in capsys.readouterr().err


def test_a_server_cannot_add_lines_to_what_is_printed() -> None:
    entry = {"time": 0, "event": "sent", "method": "x\n1970-01-01 00:00:00  sent     bytes 1\nhead: ffff", "bytes": 3}
    assert format_entry(entry) == (
        "1970-01-01 00:00:00  sent     method x\\n1970-01-01 00:00:00  sent     bytes 1\\nhead: ffff, bytes 3"
    )


def test_a_line_is_readable() -> None:
    entry = {"time": 0, "event": "joined", "terms": {"sums": "secagg"}, "models": [], "previous": "0", "hash": "1"}
    assert format_entry(entry) == "1970-01-01 00:00:00  joined   terms {sums: secagg}, models []"
