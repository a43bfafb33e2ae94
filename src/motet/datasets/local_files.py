"""Your own data in one line: a file or a folder, in whatever form it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from motet.core.errors import DataError
from motet.datasets.column_types import cast_columns, infer_task
from motet.datasets.conll import read_conll
from motet.datasets.corpus import TASK_COLUMNS, Corpus, join_splits, split_corpus
from motet.datasets.fednlp_data_file import is_fednlp_file, read_fednlp_file
from motet.datasets.hdf5_store import is_store, read_store
from motet.datasets.squad_json import read_squad
from motet.datasets.table_files import TABLE_SUFFIXES, read_header, read_table

Columns = dict[str, list[Any]]
CONLL_SUFFIXES = (".conll", ".bio", ".iob", ".ner")
LOCAL_SUFFIXES = (*TABLE_SUFFIXES, *CONLL_SUFFIXES, ".json", ".txt", ".h5", ".hdf5")
SUPPORTED_FORMATS = f"{', '.join(TABLE_SUFFIXES)}, {', '.join(CONLL_SUFFIXES)} (words and tags), .json (SQuAD's), .txt (a text a line), .h5"


def load_local_corpus(
    path: Path, test: Path | None, names: Mapping[str, str | None], task: str | None, share: float
) -> Corpus:
    """A corpus from a file, from two (training and test), or from a folder. `task` is what the recipe says, if it does."""
    if not path.exists():
        raise DataError(
            f"data.path: there is no file or folder '{path}'; Motet reads {SUPPORTED_FORMATS}, and folders of them."
        )
    if path.suffix in (".h5", ".hdf5"):
        if is_store(path):
            return read_store(path)
        if is_fednlp_file(path):
            return read_fednlp_file(path)
        raise DataError(
            f"data.path: '{path}' is neither a store of Motet's nor a file of FedNLP's; see: motet data build"
        )
    train = _columns(path, names, task)
    kind = task or infer_task(train)
    if kind is None:
        raise DataError(
            missing_columns_message(path.name, read_header(path) if path.suffix in TABLE_SUFFIXES else train)
        )
    if kind == "regression" and "score" not in train and "label" in train:
        train["score"] = train.pop("label")
    ready = cast_columns(path.name, kind, train)
    if test is None:
        return split_corpus(path.name, kind, ready, share, path.name)
    held = _columns(test, names, kind)
    if kind == "regression" and "score" not in held and "label" in held:
        held["score"] = held.pop("label")
    return join_splits(path.name, kind, ready, cast_columns(test.name, kind, held), path.name)


def missing_columns_message(name: str, has: Iterable[str]) -> str:
    needs = "; ".join(f"{task} needs {', '.join(columns)}" for task, columns in TASK_COLUMNS.items())
    return f"{name}: it has columns {', '.join(has)}, and {needs}. Say which is which, such as data.text=… data.label=…"


def _columns(path: Path, names: Mapping[str, str | None], task: str | None) -> Columns:
    if path.is_dir():
        return _folder(path, names, task)
    match path.suffix.lower():
        case suffix if suffix in TABLE_SUFFIXES:
            return read_table(path, names)
        case suffix if suffix in CONLL_SUFFIXES:
            return read_conll(path)
        case ".json":
            return read_squad(path, Counter())
        case ".txt" if task == "tagging":
            return read_conll(path)
        case ".txt":
            lines = path.read_text("utf-8-sig").splitlines()
            return {"text": [line for line in lines if line.strip()]}
    raise DataError(f"data.path: '{path.name}' ends in '{path.suffix}'; Motet reads {SUPPORTED_FORMATS}.")


def _folder(folder: Path, names: Mapping[str, str | None], task: str | None) -> Columns:
    """A folder for each label, with a text a file; or a folder (or file) for each client, with its own data."""
    entries = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    folders = [p for p in entries if p.is_dir()]
    if folders and names.get("client") is None and task in (None, "classification"):
        texts = [(d.name, f) for d in folders for f in sorted(d.iterdir()) if f.suffix in (".txt", "") and f.is_file()]
        if texts:
            return {
                "text": [f.read_text("utf-8", errors="replace") for _, f in texts],
                "label": [label for label, _ in texts],
            }
    parts = []
    for entry in folders or entries:
        files = (
            sorted(p for p in entry.iterdir() if p.is_file() and not p.name.startswith("."))
            if entry.is_dir()
            else [entry]
        )
        for file in files:
            part = _columns(file, {**names, "client": None}, task)
            size = len(next(iter(part.values())))
            parts.append({**part, "client": [entry.stem if entry.is_file() else entry.name] * size})
    if not parts:
        raise DataError(
            f"data.path: folder '{folder}' holds nothing to read; expected a folder a label, or a file or folder a client."
        )
    shared = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: [value for part in parts for value in part[name]] for name in shared}
