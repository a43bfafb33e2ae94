"""The motet command, called in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from motet import cli

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def motet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Call the command in an empty folder. Return its exit status, its output and its errors."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["motet", *words])
        status = 0
        try:
            cli.main()
        except SystemExit as end:
            status = int(end.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call
