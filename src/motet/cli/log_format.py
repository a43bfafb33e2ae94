"""How commands print while they run: lines for people, or JSON objects for programs that collect logs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet.cli.terminal import create_console, echo
from motet.transport.display_text import clean_text

if TYPE_CHECKING:
    from motet.report.run_callback import RunCallback

FORMATS = ("text", "json")
LogFormat = Annotated[
    str,
    typer.Option(
        "--log-format", envvar="MOTET_LOG_FORMAT", show_envvar=True, help="text, or json with one object per line."
    ),
]


class TextFormatter(logging.Formatter):
    """Formats a message as one line. It may quote others, who could control the terminal or add lines to the log."""

    def format(self, record: logging.LogRecord) -> str:
        line = clean_text(record.getMessage()).replace("\n", " ")
        return f"{line}\n{clean_text(self.formatException(record.exc_info))}" if record.exc_info else line


def use_log_format(log_format: str) -> None:
    """Print in this format from now on."""
    from motet.core.errors import ConfigError
    from motet.report.json_log import write_json_log

    if log_format not in FORMATS:
        raise ConfigError(f"--log-format is '{log_format}'; expected {' or '.join(FORMATS)}.")
    write_json_log(log_format == "json")


def print_line(text: str, **fields: Any) -> None:
    """Print a message. The fields are part of a JSON object, and not of a line for people."""
    from motet.report.json_log import is_json_log

    if is_json_log():
        logging.getLogger("motet.cli").info("%s", text, extra=fields)
    else:
        echo(text)


def create_run_progress() -> RunCallback:
    """Return what shows the progress of a run: bars on a terminal, lines elsewhere, or JSON."""

    from motet.report.json_log import JsonProgress, is_json_log
    from motet.report.progress import create_progress

    return JsonProgress() if is_json_log() else create_progress(create_console())
