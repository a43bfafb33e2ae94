"""The version of a run folder: which Motet wrote it and where, and whether this Motet can read and resume it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import motet
from motet.core.errors import ConfigError
from motet.experiment.loop.json_files import read_json
from motet.transport.private_files import write_atomically

VERSION_FILE = "version.json"
RUN_FORMAT = 1  # increase it when an older Motet cannot read the files of a run, or would read them wrongly
OLDEST_FORMAT = 1  # that this Motet reads. Folders without a version have format 1


def write_format(folder: Path) -> None:
    """Write which Motet starts the run in this folder, and from where."""
    record = {"format": RUN_FORMAT, "motet": motet.__version__, "started_in": str(Path.cwd())}
    write_atomically(folder / VERSION_FILE, json.dumps(record).encode())


def find_start_folder(folder: Path) -> Path:
    """Return the folder in which a run was started: the paths in its config.yaml are relative to it.

    It is the current folder if the run has no record of it, or if it is gone because the project was moved.
    """
    record: Any = read_json(folder / VERSION_FILE)
    start = record.get("started_in") if isinstance(record, dict) else None
    if isinstance(start, str) and os.access(start, os.X_OK) and Path(start).is_dir():
        return Path(start)
    return Path.cwd()


@contextmanager
def enter_start_folder(folder: Path) -> Iterator[Path]:
    """Work in the folder in which a run was started until the block ends. Yield the run's folder as seen from there."""
    start = find_start_folder(folder)
    if start == Path.cwd():
        yield folder
        return
    run = folder.absolute()
    with chdir(start):
        yield run


def check_format(folder: Path) -> None:
    """Raise an error if this Motet cannot read the run in a folder. It says which one can."""
    record: Any = read_json(folder / VERSION_FILE)
    if record is None:
        return
    try:
        number, version = int(record["format"]), str(record["motet"])[:40]
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"'{folder / VERSION_FILE}' has no format; expected a number. Restore the file.") from None
    if OLDEST_FORMAT <= number <= RUN_FORMAT:
        return
    here = f"this is Motet {motet.__version__}, which reads formats {OLDEST_FORMAT} to {RUN_FORMAT}"
    newer = "or a newer one" if number > RUN_FORMAT else "and export its model there"
    raise ConfigError(
        f"'{folder}' was written by Motet {version} (format {number}), and {here}. Nothing was changed. Finish the run with "
        f"Motet {version} {newer}, or start a new run in another folder."
    )
