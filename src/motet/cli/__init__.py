"""The command line. Nothing heavy is imported before a command needs it: help answers at once."""

from __future__ import annotations

from motet.cli import bench, data, deploy, identities, inspect, partition, runs
from motet.cli.app import app

COMMANDS = (runs, data, partition, bench, inspect, deploy, identities)  # in the order of the help page
_PLACES = {module.__name__: place for place, module in enumerate(COMMANDS)}
app.registered_commands.sort(key=lambda command: _PLACES[command.callback.__module__ if command.callback else ""])


def main() -> None:
    app()
