"""Motet's corpus files: one HDF5 file per corpus, in columns, so that millions of rows load in seconds.

Each group `columns/<name>` has the attribute `kind` (text, category, list, number) and the arrays of that column.
`report` is the read report as JSON.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa

from motet.atomic_files import replace_when_complete
from motet.core.errors import DataError
from motet.datasets.columns import CategoryColumn, CompactColumn, ListColumn, SelectedColumn, TextColumn, compact
from motet.datasets.corpus import Corpus
from motet.datasets.hdf5_access import open_hdf5, probe_hdf5
from motet.datasets.read_report import ReadReport

VERSION = 2
WRITE_ROWS = 1 << 16
_COMPRESSION: dict[str, Any] = {"compression": "lzf", "shuffle": True}


def write_store(corpus: Corpus, path: Path) -> None:
    """Write a corpus to one file. The file appears under its name only when it is complete."""
    with replace_when_complete(path) as partial_path, h5py.File(partial_path, "w") as file:
        file.attrs.update({"motet_store": VERSION, "name": corpus.name, "task": corpus.task})
        file["report"] = corpus.report.to_json()
        file.attrs["train"] = corpus.num_train
        for name, column in corpus.columns.items():
            group = file.create_group(f"columns/{name}")
            if isinstance(column, SelectedColumn) and isinstance(column.column, TextColumn):
                _write_selected_texts(group, column.column, column.rows)
            else:
                _write_column(group, compact(column))


def read_store(path: Path) -> Corpus:
    """Read a corpus; its columns are held as arrays."""
    with open_hdf5(path, "Build it again with: motet data build") as file:
        _check_version(path, file)
        return Corpus(
            name=str(file.attrs["name"]),
            task=str(file.attrs["task"]),
            columns={name: _read_column(group) for name, group in file["columns"].items()},
            num_train=int(file.attrs["train"]),
            report=ReadReport.from_json(file["report"][()].decode()),
        )


def is_store(path: Path) -> bool:
    """True if the file is one of Motet's corpus files, of any version."""
    return probe_hdf5(path, lambda file: "motet_store" in file.attrs)


def _check_version(path: Path, file: h5py.File) -> None:
    version = file.attrs.get("motet_store")
    if version != VERSION:
        raise DataError(
            f"'{path}' is not a corpus file of version {VERSION} (found {version}). "
            "Build it again with: motet data build"
        )


def _write_selected_texts(group: h5py.Group, column: TextColumn, rows: np.ndarray) -> None:
    """Write rows of a text column batch by batch: they may be larger than the memory."""
    group.attrs["kind"] = "text"
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(column.offsets[rows + 1] - column.offsets[rows], out=offsets[1:])
    group.create_dataset("offsets", data=offsets, **_COMPRESSION)
    dataset = group.create_dataset("bytes", shape=(int(offsets[-1]),), dtype=np.uint8, chunks=True, **_COMPRESSION)
    for start in range(0, len(rows), WRITE_ROWS):
        batch = rows[start : start + WRITE_ROWS]
        texts = [column.bytes[a:b] for a, b in zip(column.offsets[batch], column.offsets[batch + 1], strict=True)]
        dataset[offsets[start] : offsets[start + len(batch)]] = np.concatenate(texts)


def _write_column(group: h5py.Group, column: CompactColumn) -> None:
    match column:
        case TextColumn():
            group.attrs["kind"] = "text"
            group.create_dataset("bytes", data=column.bytes, **_COMPRESSION)
            group.create_dataset("offsets", data=column.offsets, **_COMPRESSION)
        case CategoryColumn():
            group.attrs["kind"] = "category"
            group.create_dataset("codes", data=column.codes, **_COMPRESSION)
            _write_column(group.create_group("names"), TextColumn.from_values(column.names))
        case ListColumn():
            group.attrs["kind"] = "list"
            group.create_dataset("offsets", data=column.offsets, **_COMPRESSION)
            _write_column(group.create_group("values"), column.values)
        case _:
            group.attrs["kind"] = "number"
            group.create_dataset("values", data=column, **_COMPRESSION)


def _read_column(group: h5py.Group) -> Any:
    match group.attrs["kind"]:
        case "text":
            column = TextColumn(group["bytes"][:], group["offsets"][:])
            _check_offsets(column.offsets, len(column.bytes))
            array = pa.LargeStringArray.from_buffers(
                len(column), pa.py_buffer(column.offsets), pa.py_buffer(column.bytes)
            )
            array.validate(full=True)  # raises a ValueError if it is not UTF-8
            return column
        case "category":
            codes, names = group["codes"][:], tuple(_read_column(group["names"]))
            if len(codes) and not 0 <= codes.min() <= codes.max() < len(names):
                raise ValueError("a code has no name")
            return CategoryColumn(codes, names)
        case "list":
            values, offsets = _read_column(group["values"]), group["offsets"][:]
            _check_offsets(offsets, len(values))
            return ListColumn(values, offsets)
        case _:
            return group["values"][:]


def _check_offsets(offsets: np.ndarray, size: int) -> None:
    if offsets.dtype != np.int64 or offsets.ndim != 1 or not len(offsets):
        raise ValueError("the offsets of a column are not a list of numbers")
    if offsets[0] != 0 or offsets[-1] != size or (np.diff(offsets) < 0).any():
        raise ValueError("the offsets of a column do not fit its values")
