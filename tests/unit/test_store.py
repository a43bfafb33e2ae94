"""Corpora in one file: Motet's columns and FedNLP's layout."""

from __future__ import annotations

import json
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
from motet.datasets.hdf5_store import is_store, read_store, read_store_client, read_store_rows, write_store
from motet.datasets.load_corpus import BUILTIN_CORPORA

TOYS = [name for name in BUILTIN_CORPORA if name.startswith("toy-")]


def same(one: Corpus, two: Corpus) -> None:
    assert (one.task, one.num_train, len(one)) == (two.task, two.num_train, len(two))
    for name in one.columns:
        assert [_plain(v) for v in one.column(name)] == [_plain(v) for v in two.column(name)], name


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


@pytest.mark.parametrize("name", TOYS)
def test_a_corpus_comes_back_from_its_store_as_it_went_in(name: str, tmp_path: Path) -> None:
    corpus = BUILTIN_CORPORA[name]()
    path = tmp_path / "c.h5"
    write_store(corpus, path)
    assert is_store(path)
    again = read_store(path)
    same(corpus, again)
    assert again.fingerprint == corpus.fingerprint
    assert [p.name for p in tmp_path.iterdir()] == ["c.h5"]


@pytest.mark.parametrize("name", TOYS)
def test_some_rows_and_one_client_are_read_alone(name: str, tmp_path: Path) -> None:
    corpus = BUILTIN_CORPORA[name]()
    path = tmp_path / "c.h5"
    write_store(corpus, path)
    rows = np.array([0, 1, 5, 6, 7, corpus.num_train, len(corpus) - 1])
    some = read_store_rows(path, rows)
    assert some.num_train == 5
    for column in corpus.columns:
        assert [_plain(v) for v in some.column(column)] == [_plain(corpus.column(column)[i]) for i in rows]
    mine = read_store_client(path, "author-03")
    assert set(mine.column("client")) == {"author-03"}
    assert len(mine) == list(corpus.column("client")).count("author-03")
    with pytest.raises(DataError, match="there is no client 'author-77' among 20"):
        read_store_client(path, "author-77")


@given(st.lists(st.text(max_size=6), max_size=12))
@settings(max_examples=60, deadline=None)
def test_columns_of_arrays_behave_as_lists_do(values: list[str]) -> None:
    for column in (TextColumn.from_values(values), CategoryColumn.from_values(values)):
        assert list(column) == values
        assert [column[i] for i in range(len(values))] == values
        assert column[1:4] == values[1:4]
        assert column[::2] == values[::2]
        assert not values or column[-1] == values[-1]
    nested = [values[:2], values[2:], []]
    if any(nested):
        made = compact(nested)
        assert isinstance(made, ListColumn)
        assert list(made) == nested


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    path.write_bytes(b"not hdf5")
    with pytest.raises(DataError, match="cannot be read as HDF5"):
        read_store(path)
    with h5py.File(path, "w") as file:
        file.attrs["motet_store"] = 99
    with pytest.raises(DataError, match=r"no store of version 1 \(found 99\)"):
        read_store(path)


@pytest.mark.parametrize("name", ["toy-classification", "toy-tagging", "toy-qa", "toy-seq2seq", "toy-lm"])
def test_fednlps_layout_is_written_and_read(name: str, tmp_path: Path) -> None:
    corpus = BUILTIN_CORPORA[name]().sample(30, 10, np.random.default_rng(0))
    path = tmp_path / "f.h5"
    write_fednlp_file(corpus, path)
    again = read_fednlp_file(path)
    assert (again.task, again.num_train, len(again)) == (corpus.task, 30, 40)
    for column in again.columns:
        assert [_plain(v) for v in again.column(column)] == [_plain(v) for v in corpus.column(column)], column


def test_a_file_as_fednlp_published_it_is_read_by_number_not_by_name(tmp_path: Path) -> None:
    path = tmp_path / "published.h5"
    told = {
        "index_list": list(range(12)), "train_index_list": list(range(10)), "test_index_list": [10, 11],
        "label_vocab": {"a": 0, "b": 1}, "num_labels": 2, "task_type": "text_classification",
    }  # fmt: skip
    with h5py.File(path, "w") as file:
        file["attributes"] = json.dumps(told)
        for i in range(12):
            file[f"X/{i}"], file[f"Y/{i}"] = f"text {i}", "ab"[i % 2]
    corpus = read_fednlp_file(path)
    assert list(corpus.column("text")) == [f"text {i}" for i in range(12)]
    assert corpus.num_train == 10


def test_a_large_language_model_file_is_read_in_its_blocks(tmp_path: Path) -> None:
    path = tmp_path / "lm.h5"
    told = {"index_list": [0, 1_000_001], "train_index_list": [0], "test_index_list": [1_000_001], "task_type": "lm"}
    with h5py.File(path, "w") as file:
        file["attributes"] = json.dumps(told)
        file["X_0/X/0"], file["X_1/X/1000001"] = "first", "second"
    assert list(read_fednlp_file(path).column("text")) == ["first", "second"]


def test_what_fednlp_has_no_place_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="FedNLP's layout has no place for regression"):
        write_fednlp_file(BUILTIN_CORPORA["toy-regression"](), tmp_path / "x.h5")
