"""Write rows in every format, encoding and compression that Motet reads."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

Rows = Sequence[Mapping[str, Any]]


def to_lists(rows: Rows) -> list[list[Any]]:
    """Return the header and the fields of each row."""
    return [list(rows[0]), *([row[name] for name in rows[0]] for row in rows)]


def to_csv(rows: Rows, delimiter: str = ",", line_end: str = "\r\n") -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(
        stream, list(rows[0]), delimiter=delimiter, lineterminator=line_end, quoting=csv.QUOTE_NONNUMERIC
    )
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def to_tsv(rows: Rows) -> str:
    return "".join("\t".join(map(str, fields)) + "\n" for fields in to_lists(rows))


def to_json_lines(rows: Rows) -> str:
    return "".join(json.dumps(dict(row), ensure_ascii=False) + "\n" for row in rows)


TEXT_FORMATS: dict[str, Callable[[Rows], str]] = {
    ".csv": to_csv,
    ".csv with semicolons": lambda rows: to_csv(rows, ";", "\n"),
    ".tsv": to_tsv,
    ".jsonl": to_json_lines,
    ".ndjson": lambda rows: "".join(json.dumps(dict(row)) + "\r\n" for row in rows),
    ".json": lambda rows: json.dumps([dict(row) for row in rows], ensure_ascii=False, indent=1),
    ".json with lines": to_json_lines,
    ".json with data": lambda rows: json.dumps({"version": 1, "data": [dict(row) for row in rows]}),
}


def to_parquet(rows: Rows) -> bytes:
    stream = io.BytesIO()
    pyarrow.parquet.write_table(to_table(rows), stream, row_group_size=3)
    return stream.getvalue()


def to_feather(rows: Rows, version: int = 2) -> bytes:
    stream = io.BytesIO()
    pyarrow.feather.write_feather(to_table(rows), stream, version=version)
    return stream.getvalue()


def to_arrow_stream(rows: Rows) -> bytes:
    stream = io.BytesIO()
    table = to_table(rows)
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return stream.getvalue()


def to_excel(rows: Rows) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    for fields in to_lists(rows):
        book.active.append(fields)
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


BINARY_FORMATS: dict[str, Callable[[Rows], bytes]] = {
    ".parquet": to_parquet,
    ".feather": to_feather,
    ".arrow": to_arrow_stream,
    ".xlsx": to_excel,
}


def to_table(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows])


def to_zip(data: bytes, name: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return stream.getvalue()


def _compress_with_arrow(data: bytes, codec: str) -> bytes:
    stream = pa.BufferOutputStream()
    with pa.CompressedOutputStream(stream, codec) as output:
        output.write(data)
    return bytes(stream.getvalue())


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: _compress_with_arrow(data, "zstd"),
    ".lz4": lambda data: _compress_with_arrow(data, "lz4"),
}


def write_compressed(folder: Path, name: str, data: bytes, compression: str) -> Path:
    """Write a file, and return its path."""
    if compression == ".zip":
        path = folder / f"{Path(name).stem}.zip"
        path.write_bytes(to_zip(data, name))
    else:
        path = folder / f"{name}{compression}"
        path.write_bytes(COMPRESSIONS[compression](data))
    return path
