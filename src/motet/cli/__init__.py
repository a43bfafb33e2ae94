"""The command line. Commands import heavy packages when they run, so that --help is fast."""

from __future__ import annotations

import logging
import signal

from motet.cli import (
    advise,
    bench,
    chat,
    dashboard,
    data,
    deploy,
    identities,
    init,
    join,
    partition,
    policy,
    results,
    runs,
    tune,
)
from motet.cli.app import app
from motet.cli.log_format import TextFormatter
from motet.learning.lean_transformers import allow_lean_import

COMMAND_MODULES = (
    runs,
    chat,
    results,
    dashboard,
    bench,
    tune,
    advise,
    data,
    partition,
    deploy,
    join,
    policy,
    init,
    identities,
)  # in the order of the help page
_ORDER = {module.__name__: index for index, module in enumerate(COMMAND_MODULES)}
app.registered_commands.sort(key=lambda command: _ORDER[command.callback.__module__ if command.callback else ""])


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # services are stopped like Ctrl-C: with a checkpoint
    if logging.lastResort is not None:  # prints the log where no other handler does
        logging.lastResort.setFormatter(TextFormatter())
    allow_lean_import()  # this process is Motet's own
    app(prog_name="motet")
