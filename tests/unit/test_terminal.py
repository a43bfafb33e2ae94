"""Texts of recipes, runs and data files cannot control the terminal on which a command prints them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from motet.cli import app
from motet.report.console_tables import build_comparison_table, build_settings_table
from motet.report.progress import LineProgress
from motet.transport.display_text import make_printable

CLI = Path(__file__).parents[2] / "src" / "motet" / "cli"
TITLE = "\x1b]0;title\x07"  # changes the title of a terminal


def test_characters_that_control_a_terminal_are_replaced_and_others_stay() -> None:
    assert make_printable(f"a{TITLE}b\r\x9b2J\u202e") == "a?]0;title?b??2J?"
    texts = "l'été\u00a0: oui", "नमस्ते", "سلام\u200f", "👩\u200d🔬", "a\tb\nc", "全角\u3000"
    assert [make_printable(text) for text in texts] == list(texts)


@pytest.mark.parametrize(
    "command",
    [
        ["run", "recipe.yaml"],
        ["run", f"{TITLE}recipe"],
        ["run", f"data/{TITLE}.csv"],
        ["data", "inspect", "texts.csv"],
        ["data", "show", "texts.csv"],
        ["partition", "make", "texts.csv", "--strategy", f"{TITLE}", "--clients", "2"],
    ],
    ids=["key of a recipe", "name", "path", "inspection", "rows", "option"],
)
def test_no_command_prints_control_characters(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.yaml").write_text('"\\e]0;title\\a": 1\n')
    rows = "".join(f"{TITLE} text {i},label{i % 2}{TITLE},{i % 3}\n" for i in range(30))
    (tmp_path / "texts.csv").write_text(f"text,label,client\n{rows}")
    try:
        app(args=command, prog_name="motet", standalone_mode=False)
    except SystemExit as end:
        assert end.code == 2
    output = "".join(capsys.readouterr())
    assert "]0;title" in output
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", output)


def test_a_log_line_is_one_line_without_control_characters() -> None:
    script = """
import logging
import motet.cli

def log_what_a_client_sent(prog_name):
    logging.getLogger("motet").warning("rejected: %s", "\\x1b[2J\\na line of the client")
    try:
        raise ValueError("\\x1b[2J")
    except ValueError:
        logging.getLogger("motet").exception("it failed")

motet.cli.app = log_what_a_client_sent
motet.cli.main()
"""
    lines = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stderr.splitlines()
    assert lines[:3] == ["rejected: ?[2J a line of the client", "it failed", "Traceback (most recent call last):"]
    assert lines[-1] == "ValueError: ?[2J"


def test_tables_and_notes_show_texts_as_they_are_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    from motet.cli.terminal import create_console

    console: Console = create_console(100)
    names = (f"runs/a{TITLE}", "runs/[b]:x:")
    console.print(build_settings_table([("model.freeze", "[embeddings, layers 0-2]", f"[/x]{TITLE}")], names))
    console.print(build_comparison_table([(f"f1[x]{TITLE}", 1.0, 2.0)], names))
    LineProgress(console).on_note(f"[bold]{TITLE}")
    output = capsys.readouterr().out
    assert all(text in output for text in ("[embeddings, layers 0-2]", "[/x]", "runs/[b]:x:", "f1[x]", "[bold]"))
    assert "\x1b" not in output and "\x07" not in output


def test_commands_print_only_in_this_way() -> None:
    for path in CLI.glob("*.py"):
        if path.name != "terminal.py":
            assert not re.search(r"typer\.s?echo\b|\bConsole\(|(?<![\w.])print\(", path.read_text()), path.name
