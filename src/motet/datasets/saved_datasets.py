"""Folders that Hugging Face `datasets` wrote with save_to_disk: Arrow files, listed in state.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from motet.core.errors import DataError
from motet.datasets.file_formats import ARROW
from motet.datasets.local_folders import FilePart, choose_splits
from motet.datasets.read_log import ReadLog
from motet.datasets.splits import SPLIT_NAMES


def is_saved_dataset(folder: Path) -> bool:
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def plan_saved_dataset(folder: Path, label: str, log: ReadLog) -> list[FilePart]:
    """Return the Arrow files of a dataset, or of its splits. Hidden labels of a test split are -1 in column `label`."""
    if (folder / "state.json").is_file():
        return [FilePart(path, ARROW) for path in _list_files(folder)]
    names = _read_json(folder / "dataset_dict.json").get("splits")
    if not isinstance(names, list) or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise DataError(f"{folder / 'dataset_dict.json'}: there is no list of splits. Save the dataset again.")
    splits: dict[str | None, str] = {}
    for name in names:
        other = splits.setdefault(SPLIT_NAMES.get(name.lower(), name), name)
        if other != name:
            raise DataError(
                f"data.path: the splits '{other}' and '{name}' mean the same. Rename or remove one of them."
            )
    if "train" not in splits:
        raise DataError(f"data.path: '{folder.name}' has no split 'train'; the splits are {', '.join(names)}.")
    has_hidden_labels = "dev" in splits and "test" in splits and _has_hidden_labels(folder / splits["test"], label)
    roles = choose_splits([split for split in splits if split != "test" or not has_hidden_labels])
    for split, name in splits.items():
        if split not in roles:
            log.ignore(folder / name, "hidden labels" if split == "test" else "not used")
    if roles.get("dev") == "test":
        log.warn(f"The split '{splits['dev']}' is the test set, because there is no split 'test' with labels.")
    return [
        FilePart(path, ARROW, role) for split, role in roles.items() for path in _list_files(folder / splits[split])
    ]


def _has_hidden_labels(folder: Path, label: str) -> bool:
    try:
        batch = next(iter(pa.ipc.open_stream(_list_files(folder)[0])))
        return label in batch.schema.names and len(batch) > 0 and batch.column(label)[0].as_py() in (-1, None)
    except (OSError, pa.ArrowException, StopIteration):  # the reader reports it
        return False


def _list_files(folder: Path) -> list[Path]:
    state = _read_json(folder / "state.json")
    if state.get("_indices_data_files"):
        raise DataError(f"{folder}: the dataset is a selection of rows. Save it again after flatten_indices().")
    entries = state.get("_data_files")
    names = [entry.get("filename") if isinstance(entry, dict) else None for entry in entries or ()]
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise DataError(f"{folder / 'state.json'}: there is no list of data files. Save the dataset again.")
    return [folder / str(name) for name in names]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: the file cannot be read as JSON ({error}). Save the dataset again.") from None
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a JSON object. Save the dataset again.")
    return value
