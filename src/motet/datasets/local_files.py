"""Read a user's own data from a file or a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.column_types import cast_columns, infer_task
from motet.datasets.conll import read_conll
from motet.datasets.corpus import OWN_DATA_SPLIT, TASK_COLUMNS, Corpus, join_splits, split_corpus
from motet.datasets.fednlp_data_file import is_fednlp_file, read_fednlp_file
from motet.datasets.hdf5_store import is_store, read_store
from motet.datasets.read_log import ReadLog
from motet.datasets.splits import Columns, add_column, num_rows
from motet.datasets.squad_json import read_squad
from motet.datasets.table_files import TABLE_SUFFIXES, read_header, read_table
from motet.datasets.text_files import read_lines, read_text

CONLL_SUFFIXES = (".conll", ".bio", ".iob", ".ner")
LOCAL_SUFFIXES = (*TABLE_SUFFIXES, *CONLL_SUFFIXES, ".json", ".txt", ".h5", ".hdf5")
SUPPORTED_FORMATS = (
    f"{', '.join(TABLE_SUFFIXES)}, {', '.join(CONLL_SUFFIXES)} (words and tags), .json (SQuAD), "
    ".txt (one text per line), .h5"
)


def load_local_corpus(
    path: Path, test: Path | None, column_names: Mapping[str, str | None], task: str | None, test_share: float
) -> Corpus:
    """Load a corpus from a file, from a training and a test file, or from a folder.

    If `task` is None, it is inferred from the columns.
    """
    if not path.exists():
        raise DataError(
            f"data.path: there is no file or folder '{path}'. Motet reads {SUPPORTED_FORMATS}, and folders of them."
        )
    if path.suffix in (".h5", ".hdf5"):
        return _read_hdf5(path)
    log = ReadLog(path)
    train_columns = _read_columns(path, column_names, task, log)
    task = task or infer_task(train_columns)
    if task is None:
        names = read_header(path) if path.suffix in TABLE_SUFFIXES else train_columns
        raise DataError(missing_columns_message(path.name, names))
    train_columns = cast_columns(path.name, task, _label_as_score(task, train_columns))
    if test is None:
        report = log.build_report(num_rows(train_columns))
        return split_corpus(path.name, task, train_columns, test_share, report, split_key=OWN_DATA_SPLIT)
    test_columns = cast_columns(test.name, task, _label_as_score(task, _read_columns(test, column_names, task, log)))
    report = log.build_report(num_rows(train_columns) + num_rows(test_columns))
    return join_splits(path.name, task, train_columns, test_columns, report)


def missing_columns_message(name: str, columns: Iterable[str]) -> str:
    """Explain which columns each task needs."""
    needs = "; ".join(f"{task} needs {', '.join(names)}" for task, names in TASK_COLUMNS.items())
    return (
        f"{name}: no task fits its columns {', '.join(columns)}; {needs}. "
        "Name the columns, for example data.text=… data.label=…"
    )


def _read_hdf5(path: Path) -> Corpus:
    if is_store(path):
        return read_store(path)
    if is_fednlp_file(path):
        return read_fednlp_file(path)
    raise DataError(
        f"data.path: '{path}' is neither a Motet corpus file nor a FedNLP data file. Build one with: motet data build"
    )


def _label_as_score(task: str, columns: Columns) -> Columns:
    """For regression, rename the column `label` to `score` if there is no column `score`."""
    if task != "regression" or "score" in columns or "label" not in columns:
        return columns
    return {"score" if name == "label" else name: values for name, values in columns.items()}


def _read_columns(path: Path, column_names: Mapping[str, str | None], task: str | None, log: ReadLog) -> Columns:
    if path.is_dir():
        return _read_folder(path, column_names, task, log)
    match path.suffix.lower():
        case suffix if suffix in TABLE_SUFFIXES:
            log.add_file(path)
            return read_table(path, column_names)
        case suffix if suffix in CONLL_SUFFIXES:
            return read_conll(path, log)
        case ".json":
            return read_squad(path, log)
        case ".txt" if task == "tagging":
            return read_conll(path, log)
        case ".txt":
            return {"text": [line for _, line in read_lines(path, log) if line.strip()]}
    raise DataError(f"data.path: '{path.name}' has the suffix '{path.suffix}'; Motet reads {SUPPORTED_FORMATS}.")


def _read_folder(folder: Path, column_names: Mapping[str, str | None], task: str | None, log: ReadLog) -> Columns:
    """Read one folder per label with one text per file, or one file or folder per client."""
    entries = _list_visible(folder)
    subfolders = [entry for entry in entries if entry.is_dir()]
    if subfolders and column_names.get("client") is None and task in (None, "classification"):
        columns = _read_label_folders(subfolders, log)
        if columns["text"]:
            return columns
    parts = []
    for entry in subfolders or entries:
        client = entry.name if entry.is_dir() else entry.stem
        for file in [path for path in _list_visible(entry) if path.is_file()] if entry.is_dir() else [entry]:
            columns = _read_columns(file, {**column_names, "client": None}, task, log)
            parts.append(add_column(columns, "client", client))
    if not parts:
        raise DataError(
            f"data.path: folder '{folder}' is empty; expected one folder per label, or one file or folder per client."
        )
    shared = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: [value for part in parts for value in part[name]] for name in shared}


def _list_visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _read_label_folders(folders: Iterable[Path], log: ReadLog) -> Columns:
    columns: Columns = {"text": [], "label": []}
    for folder in folders:
        for file in sorted(folder.iterdir()):
            if file.suffix in (".txt", "") and file.is_file():
                columns["text"].append(read_text(file, log))
                columns["label"].append(folder.name)
    return columns
