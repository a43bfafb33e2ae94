"""Print to the terminal. Texts of recipes, runs and data files are shown as they are, and do not control it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console


def echo(text: object = "", *, err: bool = False, color: str | None = None) -> None:
    """Print a text without characters that a terminal would obey."""
    from motet.transport.display_text import make_printable

    typer.secho(make_printable(str(text)), err=err, fg=color)


def create_console(width: int | None = None) -> Console:
    """Return a console that prints brackets as they are. `width` is used if the output is not a terminal."""
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    return console if console.is_terminal or width is None else Console(markup=False, highlight=False, width=width)
