"""Command to talk to a trained model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from motet.cli.app import TRAINING, Device, RunFolder, app, handle_errors
from motet.cli.terminal import echo

if TYPE_CHECKING:
    from motet.experiment.commands.chat_session import ChatSession


@app.command(rich_help_panel=TRAINING)
@handle_errors
def chat(
    folder: RunFolder,
    prompt: Annotated[str | None, typer.Option(help="Answer this prompt and stop.")] = None,
    system: Annotated[str, typer.Option(help="Instructions for the whole conversation.")] = "",
    base: Annotated[
        str | None, typer.Option(help="Folder or hub name of the model that the adapters belong to.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer in tokens.")] = 256,
    device: Device = "auto",
) -> None:
    """Talk to the model of a run, or to an exported model.

    Ctrl-C stops an answer. An empty line or Ctrl-D ends the conversation.
    """
    from motet.experiment.commands.chat_session import open_chat

    session = open_chat(folder, base=base, device=device, max_new_tokens=max_new_tokens, system=system)
    if prompt is not None:
        echo(session.reply(prompt))
        return
    is_terminal = sys.stdin.isatty()
    while line := _read_line("you: " if is_terminal else ""):
        if is_terminal:
            _write_answer(session, line)
        else:
            echo(session.reply(line))


def _write_answer(session: ChatSession, line: str) -> None:
    """Write an answer while it is generated. Ctrl-C stops it; the question and the answer are then forgotten."""
    echo("model: ", end="")
    try:
        session.reply(line, write=lambda text: echo(text, end=""))
    except KeyboardInterrupt:
        echo(" (stopped)", end="")
    echo()


def _read_line(label: str) -> str:
    try:
        return input(label).strip()
    except EOFError:
        return ""
