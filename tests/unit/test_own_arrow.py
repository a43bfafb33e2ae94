"""Columns of Parquet and Arrow files of any type: read as they are meant, or refused, or read with a warning."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import DataConfig, read_corpus

SIZE = 6


def read(folder: Path, options: dict[str, Any], task: str | None = None, **columns: Any) -> Corpus:
    texts = [f"case {i}" for i in range(SIZE)]
    path = folder / "t.parquet"
    pyarrow.parquet.write_table(pa.table({"text": texts, "label": ["a", "b"] * (SIZE // 2), **columns}), path)
    return read_corpus(DataConfig(path=str(path), test_share=0.0, **options), task)


def test_fields_of_structs_are_columns(tmp_path: Path) -> None:
    pairs = [{"en": f"tea {i}", "meta": {"de": f"Tee {i}"}} for i in range(SIZE)]
    corpus = read(tmp_path, {"columns": {"source": "pair.en", "target": "pair.meta.de"}}, "seq2seq", pair=pairs)
    assert list(corpus.column("source")) == [f"tea {i}" for i in range(SIZE)]
    assert list(corpus.column("target")) == [f"Tee {i}" for i in range(SIZE)]
    assert "pair" not in corpus.report.unused_columns
    with pytest.raises(
        DataError, match=r"names column 'pair\.fr'; the file has .*pair\.en, pair\.meta, pair\.meta\.de"
    ):
        read(tmp_path, {"columns": {"source": "pair.fr"}}, pair=pairs)


def test_classes_in_structs_have_their_names(tmp_path: Path) -> None:
    label = {"names": ["neg", "pos"], "_type": "ClassLabel"}
    metadata = {"huggingface": json.dumps({"info": {"features": {"meta": {"label": label}}}})}
    table = pa.table({"text": ["a", "b"], "meta": [{"label": 1}, {"label": 0}]}).replace_schema_metadata(metadata)
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    config = DataConfig(path=str(tmp_path / "t.parquet"), label="meta.label", test_share=0.0)
    assert list(read_corpus(config).column("label")) == ["pos", "neg"]


def test_metadata_that_is_nested_too_deeply_is_an_error(tmp_path: Path) -> None:
    metadata = {"huggingface": '{"a":' * 100_000}
    table = pa.table({"text": ["a"], "label": ["b"]}).replace_schema_metadata(metadata)
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet: not a valid Parquet file"):
        read_corpus(DataConfig(path=str(tmp_path / "t.parquet")))


def test_a_struct_without_a_value_has_no_field(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 2: column 'text' has no value"):
        read(tmp_path, {"text": "pair.en"}, pair=[{"en": "tea"}, None] * (SIZE // 2))


def test_decimal_numbers_are_names(tmp_path: Path) -> None:
    numbers = [Decimal("1.00"), Decimal("2.50"), Decimal("100.00")] * 2
    corpus = read(tmp_path, {}, label=numbers)
    assert list(corpus.column("label")) == ["1", "2.5", "100"] * 2


@pytest.mark.parametrize(
    ("client", "message"),
    [
        ([date(2024, 1, 2)] * SIZE, r"row 1: column 'client' holds datetime\.date\(2024, 1, 2\); expected text or a number"),
        (pa.array(pd.period_range("2024-01", periods=SIZE, freq="M")), "column 'client' has the type pandas.period, which"),
    ],
    ids=["date", "period"],
)  # fmt: skip
def test_types_of_other_programs_are_refused(client: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, {}, client=client)


@pytest.mark.parametrize(("start", "is_rounded"), [(2.0**53, True), (1001.0, False)])
def test_long_numbers_of_clients_that_were_rounded_are_a_warning(
    start: float, is_rounded: bool, tmp_path: Path
) -> None:
    corpus = read(tmp_path, {}, client=[start + i for i in range(SIZE)])
    assert any("of which only 15 digits are exact" in warning for warning in corpus.report.warnings) == is_rounded
