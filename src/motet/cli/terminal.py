"""Print to the terminal. Texts from recipes, runs and data files cannot control it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console


def echo(text: object = "", *, err: bool = False, color: str | None = None, end: str = "\n") -> None:
    """Print a text without control characters, and then `end`."""
    from motet.transport.display_text import make_printable

    typer.secho(make_printable(str(text)) + end, err=err, fg=color, nl=False)


def create_console(width: int | None = None) -> Console:
    """Return a console that prints texts as they are. `width` is used if the output is not a terminal."""
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    if width is not None and not console.is_terminal:
        console.width = width
    return console
