"""The command line. Nothing heavy is imported before a command needs it: help answers at once."""

from __future__ import annotations

from motet.cli import bench, data, deploy, identities, look, partition, runs
from motet.cli.app import app

COMMANDS = (runs, data, partition, bench, look, deploy, identities)  # in the order of the help page


def main() -> None:
    app()
