"""The folder in which a run was started. The paths in the run's config.yaml are relative to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from motet.models.model_config import find_local_model
from motet.transport.json_files import read_json

VERSION_FILE = "version.json"
# Keys that may name files. Those of a group or a baseline are the same.
PATH_KEYS = (
    *("data.path", "data.test", "partition.path", "partition.encoder", "model.name", "secure.identities"),
    *("transport.allow", "transport.key", "transport.cert", "transport.ca", "transport.devices"),
)


class VersionRecord(TypedDict):
    """version.json."""

    format: int
    motet: str
    started_in: NotRequired[str]


def find_start_folder(folder: Path) -> Path:
    """Return the folder in which a run was started.

    It is the current folder if the run has no record of it, or if it is gone because the project was moved.
    """
    start = (read_version(folder) or {}).get("started_in", "")
    return Path(start) if os.access(start, os.X_OK) and Path(start).is_dir() else Path.cwd()


def read_version(folder: Path) -> dict[str, Any] | None:
    """Read which Motet started the run in a folder, and from where; None if the run has no record of it."""
    record: dict[str, Any] | None = read_json(folder / VERSION_FILE, VersionRecord)
    return record


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


def locate_files(settings: Mapping[str, Any], recipe: Path) -> dict[str, Any]:
    """Return the settings of a recipe. If it is the config.yaml of a run, the paths of its files become absolute."""
    start = find_start_folder(recipe.parent) if recipe.name == "config.yaml" else Path.cwd()
    return dict(settings) if start == Path.cwd() else _locate(settings, start)


def _locate(settings: Mapping[str, Any], start: Path, section: str = "") -> dict[str, Any]:
    located: dict[str, Any] = {}
    for key, value in settings.items():
        path = f"{section}{key}"
        if path == "baselines" and isinstance(value, Mapping):
            located[key] = {name: _locate(v, start) if isinstance(v, Mapping) else v for name, v in value.items()}
        elif path == "groups" and isinstance(value, Sequence):
            located[key] = [_locate(group, start) for group in value]
        elif isinstance(value, Mapping) and not section:
            located[key] = _locate(value, start, f"{key}.")
        else:
            located[key] = _locate_file(path, value, start) if path in PATH_KEYS else value
    return located


def _locate_file(key: str, value: Any, start: Path) -> Any:
    """Return the absolute path of a file or a folder in `start`. All other values stay as they are."""
    if not isinstance(value, str):
        return value
    if key in ("model.name", "partition.encoder"):
        kind, colon, name = value.rpartition(":")  # mixed:NAME
        model = find_local_model(name, start)
        return value if model is None else f"{kind}{colon}{model}"
    return str(start / value) if (start / value).exists() else value
