"""Motet's corpus files and FedNLP's data files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.core.errors import DataError
from motet.datasets.columns import CategoryColumn, ListColumn, TextColumn, compact
from motet.datasets.corpus import Corpus
from motet.datasets.fednlp_data_file import read_fednlp_file, write_fednlp_file
from motet.datasets.hdf5_store import is_store, read_store, write_store
from motet.datasets.load_corpus import BUILTIN_CORPORA
from motet.partitions.fednlp_partition_file import is_fednlp_partition_file
from motet.partitions.partition_file import read_partition

TOYS = [name for name in BUILTIN_CORPORA if name.startswith("toy-")]


def assert_same(one: Corpus, two: Corpus) -> None:
    assert (one.task, one.num_train, len(one)) == (two.task, two.num_train, len(two))
    for name in one.columns:
        assert [_to_python(v) for v in one.column(name)] == [_to_python(v) for v in two.column(name)], name


def _to_python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


@pytest.mark.parametrize("name", TOYS)
def test_corpus_survives_a_round_trip(name: str, tmp_path: Path) -> None:
    corpus = BUILTIN_CORPORA[name]()
    path = tmp_path / "c.h5"
    write_store(corpus, path)
    assert is_store(path)
    restored = read_store(path)
    assert_same(corpus, restored)
    assert restored.fingerprint == corpus.fingerprint
    assert [p.name for p in tmp_path.iterdir()] == ["c.h5"]


@given(st.lists(st.text(max_size=6), max_size=12))
@settings(max_examples=60, deadline=None)
def test_compact_columns_behave_like_lists(values: list[str]) -> None:
    for column in (TextColumn.from_values(values), CategoryColumn.from_values(values)):
        assert list(column) == values
        assert [column[i] for i in range(len(values))] == values
        assert column[1:4] == values[1:4]
        assert column[::2] == values[::2]
        assert not values or column[-1] == values[-1]
    nested = [values[:2], values[2:], []]
    if any(nested):
        column = compact(nested)
        assert isinstance(column, ListColumn)
        assert list(column) == nested


def test_invalid_corpus_file_raises_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    path.write_bytes(b"not hdf5")
    with pytest.raises(DataError, match="cannot be read as HDF5"):
        read_store(path)
    with h5py.File(path, "w") as file:
        file.attrs["motet_store"] = 99
    with pytest.raises(DataError, match=r"not a corpus file of version 2 \(found 99\)"):
        read_store(path)


@pytest.mark.parametrize("name", ["toy-classification", "toy-tagging", "toy-qa", "toy-seq2seq", "toy-lm"])
def test_fednlp_file_survives_a_round_trip(name: str, tmp_path: Path) -> None:
    corpus = BUILTIN_CORPORA[name]().sample(30, 10, np.random.default_rng(0))
    path = tmp_path / "f.h5"
    write_fednlp_file(corpus, path)
    restored = read_fednlp_file(path)
    assert (restored.task, restored.num_train, len(restored)) == (corpus.task, 30, 40)
    for column in restored.columns:
        assert [_to_python(v) for v in restored.column(column)] == [_to_python(v) for v in corpus.column(column)], (
            column
        )


def test_published_fednlp_file_is_read_in_numeric_order(tmp_path: Path) -> None:
    path = tmp_path / "published.h5"
    attributes = {
        "index_list": list(range(12)), "train_index_list": list(range(10)), "test_index_list": [10, 11],
        "label_vocab": {"a": 0, "b": 1}, "num_labels": 2, "task_type": "text_classification",
    }  # fmt: skip
    with h5py.File(path, "w") as file:
        file["attributes"] = json.dumps(attributes)
        for i in range(12):
            file[f"X/{i}"], file[f"Y/{i}"] = f"text {i}", "ab"[i % 2]
    corpus = read_fednlp_file(path)
    assert list(corpus.column("text")) == [f"text {i}" for i in range(12)]
    assert corpus.num_train == 10


def test_large_fednlp_lm_file_is_read_from_its_groups(tmp_path: Path) -> None:
    path = tmp_path / "lm.h5"
    attributes = {
        "index_list": [0, 1_000_001],
        "train_index_list": [0],
        "test_index_list": [1_000_001],
        "task_type": "lm",
    }
    with h5py.File(path, "w") as file:
        file["attributes"] = json.dumps(attributes)
        file["X_0/X/0"], file["X_1/X/1000001"] = "first", "second"
    assert list(read_fednlp_file(path).column("text")) == ["first", "second"]


def test_unsupported_task_cannot_be_written_as_a_fednlp_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="FedNLP's layout does not support regression"):
        write_fednlp_file(BUILTIN_CORPORA["toy-regression"](), tmp_path / "x.h5")


def _link(file: h5py.File, secret: Path) -> None:
    file["columns/text/bytes"] = h5py.ExternalLink(str(secret), "secret")


def _soft_link(file: h5py.File, secret: Path) -> None:
    file["hidden/link"] = h5py.ExternalLink(str(secret), "secret")
    file["columns/text/bytes"] = h5py.SoftLink("/hidden/link")


def _external_storage(file: h5py.File, secret: Path) -> None:
    file.create_dataset("columns/text/bytes", shape=(6,), dtype=np.uint8, external=[(str(secret), 0, 6)])


def _virtual_dataset(file: h5py.File, secret: Path) -> None:
    layout = h5py.VirtualLayout(shape=(6,), dtype=np.uint8)
    layout[:] = h5py.VirtualSource(str(secret), "secret", shape=(6,))
    file.create_virtual_dataset("columns/text/bytes", layout)


@pytest.mark.parametrize(
    ("add", "problem"),
    [
        (_link, "a link to another file"),
        (_soft_link, "a link to another file"),
        (_external_storage, "stored in another file"),
        (_virtual_dataset, "a virtual dataset"),
    ],
)
def test_file_that_reads_other_files_is_refused(
    add: Callable[[h5py.File, Path], None], problem: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["secret"] = np.frombuffer(b"secret", np.uint8)
    path = tmp_path / "shared.h5"
    write_store(Corpus("c", "lm", {"text": ["public"]}, 1), path)
    with h5py.File(path, "a") as file:
        del file["columns/text"]
        file.create_group("columns/text").attrs["kind"] = "text"
        file["columns/text/offsets"] = np.array([0, 6])
        add(file, secret)
    with pytest.raises(DataError, match=f"is refused: '.*' is {problem}"):
        read_store(path)
    for read in (read_fednlp_file, read_partition, is_fednlp_partition_file):
        with pytest.raises(DataError, match=f"is refused: '.*' is {problem}"):
            read(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text/offsets", np.array([0, 3, 2])),
        ("text/offsets", np.array([0, 3, 99])),
        ("text/offsets", np.array([0.0, 1.0, 2.0])),
        ("text/bytes", np.frombuffer(b"\xff" * 6, np.uint8)),
        ("label/codes", np.array([0, 7], np.int32)),
        ("label/codes", np.array([0, -1], np.int32)),
    ],
)
def test_damaged_column_is_an_error(name: str, value: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "c.h5"
    columns = {
        "text": TextColumn.from_values(["one", "two"]),
        "label": CategoryColumn.from_values(["a", "b"]),
    }
    write_store(Corpus("c", "classification", columns, 1), path)  # type: ignore[arg-type]
    with h5py.File(path, "a") as file:
        del file[f"columns/{name}"]
        file[f"columns/{name}"] = value
    with pytest.raises(DataError, match="cannot be read as HDF5"):
        read_store(path)
