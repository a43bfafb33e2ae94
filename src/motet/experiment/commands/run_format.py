"""The version of a run folder: which Motet wrote it and where, and whether this Motet can read and resume it."""

from __future__ import annotations

import json
from pathlib import Path

import motet
from motet.core.errors import ConfigError
from motet.experiment.recipe.start_folder import VERSION_FILE, read_version
from motet.transport.private_files import write_atomically

RUN_FORMAT = 2  # increase it when an older Motet cannot read the files of a run, or would read them wrongly
OLDEST_FORMAT = 1  # that this Motet reads. Folders without a version have format 1


def write_format(folder: Path) -> None:
    """Write which Motet starts the run in this folder, and from where."""
    record = {"format": RUN_FORMAT, "motet": motet.__version__, "started_in": str(Path.cwd())}
    write_atomically(folder / VERSION_FILE, json.dumps(record).encode())


def check_format(folder: Path) -> None:
    """Raise an error if this Motet cannot read the run in a folder. It says which one can."""
    record = read_version(folder)
    if record is None:
        return
    number, version = record["format"], record["motet"][:40]
    if OLDEST_FORMAT <= number <= RUN_FORMAT:
        return
    here = f"this is Motet {motet.__version__}, which reads formats {OLDEST_FORMAT} to {RUN_FORMAT}"
    newer = "or a newer one" if number > RUN_FORMAT else "and export its model there"
    raise ConfigError(
        f"'{folder}' was written by Motet {version} (format {number}), and {here}. Nothing was changed. Finish the run with "
        f"Motet {version} {newer}, or start a new run in another folder."
    )
