"""The store: one HDF5 file a corpus, in columns, so that millions of rows load in seconds and one client's in no time.

columns/<name>   kind (text, category, list, number) and its arrays
clients          who has which rows, if the corpus has natural clients: names (sorted), offsets, rows
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from motet.core.errors import DataError
from motet.datasets.columns import CategoryColumn, CompactColumn, ListColumn, TextColumn, compact
from motet.datasets.corpus import Corpus

VERSION = 1
_SQUEEZE: dict[str, Any] = {"compression": "lzf", "shuffle": True}


def write_store(corpus: Corpus, path: Path) -> None:
    """All of a corpus into one file; it stands under its name only when it is complete."""
    beside = path.with_name(f".{path.name}.part")
    with h5py.File(beside, "w") as file:
        file.attrs.update({"motet_store": VERSION, "name": corpus.name, "task": corpus.task, "source": corpus.source})
        file.attrs["train"] = corpus.num_train
        for name, column in corpus.columns.items():
            _write(file.create_group(f"columns/{name}"), compact(column))
        if "client" in corpus.columns:
            _write_clients(file.create_group("clients"), corpus.columns["client"])
    beside.replace(path)


def read_store(path: Path) -> Corpus:
    """The whole corpus, held as arrays."""
    with _opened(path) as file:
        columns = {name: _read(group, None) for name, group in file["columns"].items()}
        told = {key: str(file.attrs[key]) for key in ("name", "task", "source")}
        return Corpus(told["name"], told["task"], columns, int(file.attrs["train"]), told["source"])


def read_store_rows(path: Path, rows: np.ndarray) -> Corpus:
    """Some rows of a corpus; memory for those alone. Training rows must come first."""
    with _opened(path) as file:
        columns = {name: _read(group, rows) for name, group in file["columns"].items()}
        told = {key: str(file.attrs[key]) for key in ("name", "task", "source")}
        train = int((rows < int(file.attrs["train"])).sum())
        return Corpus(told["name"], told["task"], columns, train, told["source"])


def read_store_client(path: Path, client: str) -> Corpus:
    """The rows of one natural client."""
    with _opened(path) as file:
        if "clients" not in file:
            raise DataError(f"{path.name}: the corpus has no natural clients, so there is no '{client}' in it.")
        names, offsets = file["clients/names"], file["clients/offsets"]
        place = _found(names, client.encode())
        if place is None:
            last = names[-1].decode()
            raise DataError(
                f"{path.name}: there is no client '{client}' among {len(names):,} ({names[0].decode()} to {last})."
            )
        first, end = (int(v) for v in offsets[place : place + 2])
        rows = np.asarray(file["clients/rows"][first:end])
    return read_store_rows(path, rows)


def is_store(path: Path) -> bool:
    if not h5py.is_hdf5(path):
        return False
    with h5py.File(path, "r") as file:
        return "motet_store" in file.attrs


def _opened(path: Path) -> h5py.File:
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataError(
            f"data.path: '{path}' cannot be read as HDF5 ({error}); build it with: motet data build"
        ) from None
    if file.attrs.get("motet_store") != VERSION:
        found = file.attrs.get("motet_store")
        file.close()
        raise DataError(
            f"'{path}' is no store of version {VERSION} (found {found}); build it anew with: motet data build"
        )
    return file


def _write(group: h5py.Group, column: CompactColumn) -> None:
    match column:
        case TextColumn():
            group.attrs["kind"] = "text"
            group.create_dataset("bytes", data=column.bytes, **_SQUEEZE)
            group.create_dataset("offsets", data=column.offsets, **_SQUEEZE)
        case CategoryColumn():
            group.attrs["kind"] = "category"
            group.create_dataset("codes", data=column.codes, **_SQUEEZE)
            _write(group.create_group("names"), TextColumn.from_values(column.names))
        case ListColumn():
            group.attrs["kind"] = "list"
            group.create_dataset("offsets", data=column.offsets, **_SQUEEZE)
            _write(group.create_group("values"), column.values)
        case _:
            group.attrs["kind"] = "number"
            group.create_dataset("values", data=column, **_SQUEEZE)


def _read(group: h5py.Group, rows: np.ndarray | None) -> Any:
    match group.attrs["kind"]:
        case "text":
            if rows is None:
                return TextColumn(group["bytes"][:], group["offsets"][:])
            spans = _spans(group["offsets"], rows)
            return TextColumn(_pieces(group["bytes"], spans, np.uint8), _from_spans(spans))
        case "category":
            codes = group["codes"][:] if rows is None else group["codes"][rows]
            return CategoryColumn(codes, tuple(_read(group["names"], None)))
        case "list":
            if rows is None:
                return ListColumn(_read(group["values"], None), group["offsets"][:])
            spans = _spans(group["offsets"], rows)
            inner = np.concatenate([np.arange(a, b) for a, b in spans]) if len(spans) else np.zeros(0, np.int64)
            return ListColumn(_read(group["values"], inner), _from_spans(spans))
        case _:
            return group["values"][:] if rows is None else group["values"][rows]


def _spans(offsets: h5py.Dataset, rows: np.ndarray) -> list[tuple[int, int]]:
    """Where rows lie; neighbours are read together."""
    found: list[tuple[int, int]] = []
    for first, last in _runs(rows):
        ends = offsets[first : last + 1].tolist()
        found += list(itertools.pairwise(ends))
    return found


def _runs(rows: np.ndarray) -> list[tuple[int, int]]:
    if not len(rows):
        return []
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(rows, breaks)]


def _pieces(data: h5py.Dataset, spans: list[tuple[int, int]], dtype: Any) -> np.ndarray:
    pieces = [data[a:b] for a, b in spans if b > a]
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype)


def _from_spans(spans: list[tuple[int, int]]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum([b - a for a, b in spans], dtype=np.int64)]).astype(np.int64)


def _write_clients(group: h5py.Group, column: Sequence[str]) -> None:
    coded = compact(column)
    if isinstance(coded, CategoryColumn):
        names = np.array([n.encode() for n in coded.names])
        order = np.argsort(names)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        ids, names = rank[coded.codes], names[order]
    else:
        names, ids = np.unique(np.array([str(v).encode() for v in column]), return_inverse=True)
    group.create_dataset("names", data=names)
    group.create_dataset("rows", data=np.argsort(ids, kind="stable"), **_SQUEEZE)
    counts = np.bincount(ids, minlength=len(names))
    group.create_dataset("offsets", data=np.concatenate([[0], np.cumsum(counts)]), **_SQUEEZE)


def _found(names: h5py.Dataset, name: bytes) -> int | None:
    """By halving, a few reads however many there are."""
    low, high = 0, len(names)
    while low < high:
        middle = (low + high) // 2
        if bytes(names[middle]) < name:
            low = middle + 1
        else:
            high = middle
    return low if low < len(names) and bytes(names[low]) == name else None
