"""Read a user's own data from a file, a folder or an archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError, DataError
from motet.datasets.column_names import optional_groups
from motet.datasets.column_types import cast_columns
from motet.datasets.compression import is_archive, unpacked
from motet.datasets.corpus import OWN_DATA_SPLIT, Corpus
from motet.datasets.data_file import NO_GROUP, DataFile, ReadOptions
from motet.datasets.fednlp_data_file import is_fednlp_file, read_fednlp_file
from motet.datasets.file_formats import HDF5_SUFFIXES, SUPPORTED_FORMATS, TEXT, require_format
from motet.datasets.hdf5_store import is_store, read_store
from motet.datasets.inspection.finding import MAX_LISTED, list_first
from motet.datasets.local_folders import FilePart, plan_folder
from motet.datasets.raw_table import TableBuilder
from motet.datasets.read_log import ReadLog
from motet.datasets.saved_datasets import is_saved_dataset, plan_saved_dataset
from motet.datasets.splits import split_rows
from motet.datasets.task_inference import infer_task, unused_columns
from motet.datasets.unread_columns import warn_of_unread_columns
from motet.missing_paths import describe_missing

MIN_PARALLEL_LINES = 10  # fewer may be equal by chance


def load_local_corpus(path: Path, test: Path | None, options: ReadOptions, test_share: float) -> Corpus:
    """Load a corpus from a file, from a training and a test file, or from a folder."""
    for file in (path, test):
        if file is not None and not file.exists():
            key = "data.path" if file is path else "data.test"
            raise DataError(f"{key}: {describe_missing(file)} Motet reads {SUPPORTED_FORMATS}, and folders of them.")
    if path.suffix.lower() in HDF5_SUFFIXES:
        return _read_hdf5(path)
    with _open_path(path) as train_path, _open_path(test) as test_path:
        return _load(path.name, train_path or path, test_path, options, test_share)


def _open_path(path: Path | None) -> AbstractContextManager[Path | None]:
    """Unpack an archive; return any other path as it is."""
    return unpacked(path) if path is not None and is_archive(path) else nullcontext(path)


def _read_hdf5(path: Path) -> Corpus:
    if is_store(path):
        return read_store(path)
    if is_fednlp_file(path):
        return read_fednlp_file(path)
    raise DataError(
        f"data.path: '{path}' is neither a Motet corpus file nor a FedNLP data file, or it is damaged. Build one with: "
        "motet data build"
    )


def _load(name: str, path: Path, test: Path | None, options: ReadOptions, test_share: float) -> Corpus:
    log = ReadLog(path)
    parts = _plan(path, options, log)
    if test is not None:
        if any(part.split == "test" for part in parts):
            raise ConfigError(f"data.test is set, but '{name}' has test files of its own. Remove data.test.")
        parts += [replace(part, split="test") for part in _plan(test, options, log)]
    builder = TableBuilder()
    sizes: dict[Path, int] = {}  # rows of each file
    for part in sorted(parts, key=lambda part: part.split == "test"):
        constants = part.constants if part.split == "train" else {**optional_groups(builder), **part.constants}
        log.columns.update(dict.fromkeys(part.constants, "the name of the file or its folder"))
        start = builder.num_rows
        part.file_format.read(DataFile(part.path, options, log, constants), builder)
        sizes[part.path] = builder.num_rows - start
    num_train = sum(sizes[part.path] for part in parts if part.split == "train")
    _note_parallel_files(
        [part.path for part in parts if part.split == "train" and part.file_format is TEXT], sizes, log
    )
    if num_train == 0:
        raise DataError(f"{name}: there are no training rows in {log.file_names}; expected at least one.")
    if num_train == builder.num_rows and any(part.split == "test" for part in parts):
        raise DataError(f"{name}: there are test files without rows. Remove them, or add the rows.")
    if empty := [log.relative_name(path) for path, size in sizes.items() if not size]:
        log.warn(f"Files without rows: {list_first(empty, MAX_LISTED)}.")
    task, columns = convert_table(name, builder, options, log, num_train)
    report = log.build_report(builder.num_rows)
    if num_train < builder.num_rows:
        return Corpus(name, task, columns, num_train, report)
    return split_rows(name, task, columns, test_share, report, split_key=OWN_DATA_SPLIT)


def convert_table(
    name: str, builder: TableBuilder, options: ReadOptions, log: ReadLog, num_train: int
) -> tuple[str, dict[str, Sequence[Any]]]:
    """Return the task of a table and its columns, converted to the types that the task needs."""
    table, task, log.task_reason = builder.build(), options.task, "task.type"
    if task is None:
        task, log.task_reason = infer_task(name, table.columns, builder.other_columns)
    columns = cast_columns(table, task, log, num_train, options.repair_tags)
    unused = [name for name in unused_columns(task, table.columns) if log.columns.get(name, "").startswith("column ")]
    log.unused_columns = (*unused, *builder.other_columns)
    log.columns = {name: source for name, source in log.columns.items() if name not in unused}
    warn_of_unread_columns(task, builder.other_columns, log, has_test_rows=num_train < table.num_rows)
    _note_rows_without_client(columns, num_train, log)
    return task, columns


def _note_parallel_files(texts: Sequence[Path], sizes: Mapping[Path, int], log: ReadLog) -> None:
    """Write a warning about two text files with equally many lines: these may be texts and their labels."""
    if len(texts) == 2 and len({sizes[path] for path in texts}) == 1 and sizes[texts[0]] >= MIN_PARALLEL_LINES:
        first, second = map(log.relative_name, texts)
        log.warn(
            f"'{first}' and '{second}' both have {sizes[texts[0]]:,} lines, which are read as texts of two clients. If the "
            "lines belong together, write them into two columns of a table."
        )


def _note_rows_without_client(columns: Mapping[str, Sequence[Any]], num_train: int, log: ReadLog) -> None:
    count = sum(client == NO_GROUP for client in columns.get("client", ())[num_train:])
    if count:
        log.warn(f"{count:,} test rows have no client. They are only in the global test set.")


def _plan(path: Path, options: ReadOptions, log: ReadLog) -> list[FilePart]:
    if path.is_dir():
        label = options.column_names.get("label") or "label"
        return plan_saved_dataset(path, label, log) if is_saved_dataset(path) else plan_folder(path, options, log)
    return [FilePart(path, require_format(DataFile(path, options, log.fork())))]
