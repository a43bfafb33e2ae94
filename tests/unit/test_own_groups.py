"""Test rows without a client, and columns without values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from motet.core.errors import ConfigError, DataError
from motet.core.rng import Seed
from motet.datasets.inspection.corpus_inspection import inspect_corpus
from motet.datasets.load_corpus import DataConfig, read_corpus
from motet.partitions.natural import natural

SUFFIXES = (".csv", ".jsonl", ".json", ".parquet", ".xlsx")
TRAIN = [{"text": f"text {i}", "label": "ab"[i % 2], "author": f"author-{i % 3}"} for i in range(12)]
TEST = [{"text": f"test {i}", "label": "ab"[i % 2]} for i in range(4)]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> str:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".xlsx":
        openpyxl = pytest.importorskip("openpyxl")
        book = openpyxl.Workbook()
        for fields in (list(rows[0]), *(list(row.values()) for row in rows)):
            book.active.append(fields)
        book.save(path)
    else:
        path.write_text("".join(",".join(map(str, fields)) + "\n" for fields in (rows[0], *(r.values() for r in rows))))
    return str(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_test_rows_without_a_client_are_only_in_the_global_test_set(suffix: str, tmp_path: Path) -> None:
    path, test = write_rows(tmp_path / f"a{suffix}", TRAIN), write_rows(tmp_path / f"b{suffix}", TEST)
    corpus = read_corpus(DataConfig(path=path, test=test, client="author"))
    assert list(corpus.column("text")) == [row["text"] for row in TRAIN + TEST]
    assert corpus.report.warnings == ("4 test rows have no client. They are only in the global test set.",)
    assert inspect_corpus(corpus).num_clients == 3
    partition = natural(corpus, Seed(0))
    assert list(partition.clients) == ["author-0", "author-1", "author-2"]
    assert len(partition.test.rows) == 0
    with pytest.raises(ConfigError, match=r"4 rows have no value in column 'client', and they would be training rows"):
        natural(read_corpus(DataConfig(path=path, test=test, client="author", resplit=True, test_share=0.01)), Seed(0))


def test_a_training_row_without_a_client_is_an_error(tmp_path: Path) -> None:
    rows = [*TRAIN, {**TEST[0], "author": ""}]
    path, test = write_rows(tmp_path / "a.csv", rows), write_rows(tmp_path / "b.csv", TEST)
    with pytest.raises(DataError, match=r"a.csv, line 14: column 'client' holds ''; expected a client"):
        read_corpus(DataConfig(path=path, test=test, client="author"))
    with pytest.raises(DataError, match=r"a.csv: data.client names column 'owner'; the file has text, label, author"):
        read_corpus(DataConfig(path=path, test=test, client="owner"))


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_a_column_without_values_is_not_passed_over(suffix: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / f"a{suffix}", [{"text": row["text"], "label": None} for row in TRAIN])
    with pytest.raises(DataError, match=r"its columns are text, label. With a text alone, the task would be language"):
        read_corpus(DataConfig(path=path))
    with pytest.raises(DataError, match=r"data.label names column 'label', which has no value in any row"):
        read_corpus(DataConfig(path=path, label="label"))
