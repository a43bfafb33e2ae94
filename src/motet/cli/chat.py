"""Command to talk to a trained model."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from motet.cli.app import TRAINING, Device, RunFolder, app, handle_errors
from motet.cli.terminal import echo


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
    """Talk to the model of a run, or to an exported model. An empty line or Ctrl-D ends the conversation."""
    from motet.experiment.commands.chat_session import open_chat

    session = open_chat(folder, base=base, device=device, max_new_tokens=max_new_tokens, system=system)
    if prompt is not None:
        echo(session.reply(prompt))
        return
    is_terminal = sys.stdin.isatty()
    while line := _read_line("you: " if is_terminal else ""):
        echo(f"model: {session.reply(line)}" if is_terminal else session.reply(line))


def _read_line(label: str) -> str:
    try:
        return input(label).strip()
    except EOFError:
        return ""
