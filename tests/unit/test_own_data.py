"""One's own data in one line, whatever its form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from motet.core.errors import ConfigError, DataError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import DataConfig, load_corpus


def loaded(path: Path, task: str | None = None, **choice: object) -> Corpus:
    return load_corpus(DataConfig(path=str(path), **choice), Seed(0), task)  # type: ignore[arg-type]


def test_conll_columns_are_tagging(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("Anna B-PER\nsleeps O\n\nin O\nOslo B-LOC\n\n" * 4)
    corpus = loaded(path)
    assert corpus.task == "tagging"
    assert ["Anna", "sleeps"] in list(corpus.column("words"))
    text = tmp_path / "b.txt"
    text.write_text(path.read_text())
    assert loaded(text, "tagging").task == "tagging"


def test_squads_json_is_question_answering(tmp_path: Path) -> None:
    qas = [{"id": str(i), "question": "who?", "answers": [{"text": "Anna", "answer_start": 0}]} for i in range(5)]
    path = tmp_path / "q.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [{"context": "Anna sleeps.", "qas": qas}]}]}))
    corpus = loaded(path)
    assert corpus.task == "qa"
    assert list(corpus.column("starts")) == [[0]] * 5


def test_questions_in_a_table_find_their_answers(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    rows = [
        {"passage": "Anna sleeps in Oslo.", "question": "where?", "gold": ["Oslo"]},
        {"passage": "Anna sleeps in Oslo.", "question": "who?", "gold": {"text": ["Anna"], "answer_start": [0]}},
        {"passage": "Anna sleeps in Oslo.", "question": "why?", "gold": []},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    corpus = loaded(path, columns={"context": "passage", "answers": "gold"})
    found = dict(zip(corpus.column("question"), corpus.column("starts"), strict=True))
    assert found == {"where?": [15], "who?": [0], "why?": []}


def test_an_answer_that_is_not_in_its_passage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"context": "Anna sleeps.", "question": "where?", "answers": ["Rome"]}))
    with pytest.raises(DataError, match=r"q\.jsonl, row 0: answer 'Rome' does not occur in its passage"):
        loaded(path)


def test_a_folder_for_each_label_is_classification(tmp_path: Path) -> None:
    for label in ("good", "bad"):
        (tmp_path / "texts" / label).mkdir(parents=True)
        for i in range(3):
            (tmp_path / "texts" / label / f"{i}.txt").write_text(f"{label} text {i}")
    corpus = loaded(tmp_path / "texts")
    assert (corpus.task, len(corpus)) == ("classification", 6)
    assert all(t.startswith(label) for t, label in zip(corpus.column("text"), corpus.column("label"), strict=True))


def test_a_folder_or_a_file_for_each_client_names_the_clients(tmp_path: Path) -> None:
    for client in ("north", "south"):
        (tmp_path / "wards" / client).mkdir(parents=True)
        (tmp_path / "wards" / client / "notes.csv").write_text(f"text,label\n{client} one,a\n{client} two,b\n")
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "files" / f"{client}.csv").write_text(f"text,label\n{client} one,a\n{client} two,b\n")
    for folder in ("wards", "files"):
        corpus = loaded(tmp_path / folder)
        assert set(corpus.column("client")) == {"north", "south"}
        assert all(t.startswith(c) for t, c in zip(corpus.column("text"), corpus.column("client"), strict=True))


def test_parquet_is_read(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"body": ["one", "two", "three"], "kind": ["a", "b", "a"]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    corpus = loaded(tmp_path / "t.parquet", text="body", label="kind")
    assert set(corpus.column("text")) == {"one", "two", "three"}
    (tmp_path / "broken.parquet").write_bytes(b"PAR0")
    with pytest.raises(DataError, match=r"broken\.parquet: this is no parquet file"):
        loaded(tmp_path / "broken.parquet")


def test_lines_of_text_are_a_language_model(tmp_path: Path) -> None:
    path = tmp_path / "l.txt"
    path.write_text("one\n\ntwo\nthree\n")
    assert loaded(path).task == "lm"
    assert len(loaded(path)) == 3


@pytest.mark.parametrize(
    ("header", "row", "task"),
    [
        ("source,target", "a long text,short", "seq2seq"),
        ("text,score", "fine,0.5", "regression"),
        ("text,second,label", "a,b,yes", "classification"),
        ("words,tags", "Anna sleeps,B-PER O", "tagging"),
        ("text", "just text", "lm"),
    ],
)
def test_the_columns_tell_the_task(header: str, row: str, task: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n{row}\n{row}\n")
    assert loaded(path).task == task


def test_a_table_with_semicolons_is_read_as_spreadsheets_write_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text;label\none, two;a\nthree;b\n")
    corpus = load_corpus(DataConfig(path=str(tmp_path / "t.csv"), test_share=0.5), Seed(0))
    assert sorted(corpus.column("text")) == ["one, two", "three"]


def test_a_label_can_be_a_score_if_the_recipe_says_regression(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\na,1.5\nb,2\nc,much\n")
    with pytest.raises(DataError, match=r"t\.csv, row 2: column 'score' holds 'much'; expected a number"):
        loaded(path, "regression")


def test_a_dataset_in_the_hubs_form_is_read_from_its_folder(tmp_path: Path) -> None:
    for split, rows in (("train", ["x,a", "y,b", "z,a"]), ("test", ["w,b"])):
        (tmp_path / "hub").mkdir(exist_ok=True)
        (tmp_path / "hub" / f"{split}.csv").write_text("\n".join(["sentence,kind", *rows]))
    choice = DataConfig(name=str(tmp_path / "hub"), text="sentence", label="kind")
    corpus = load_corpus(choice, Seed(0))
    assert (corpus.num_train, len(corpus), corpus.task) == (3, 4, "classification")
    with pytest.raises(DataError, match="it has columns sentence, kind, and classification needs text, label"):
        load_corpus(DataConfig(name=str(tmp_path / "hub")), Seed(0))


def test_a_corpus_whose_files_are_not_here_says_where_it_looked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOTET_DATA", "elsewhere")
    with pytest.raises(
        ConfigError,
        match=r"looked in elsewhere/20news, data/20news, \.data/20news\); put them there, or say .* data.path=",
    ):
        load_corpus(DataConfig(name="20news"), Seed(0))


def test_names_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Motet has no column 'contxt'.*Did you mean 'context'"):
        DataConfig(path="x.csv", columns={"contxt": "a"})
    with pytest.raises(ConfigError, match=r"data\.test_share is 1\.5"):
        DataConfig(path="x.csv", test_share=1.5)
    with pytest.raises(ConfigError, match=r"there is no corpus '20new'\. Did you mean '20news'"):
        load_corpus(DataConfig(name="20new"), Seed(0))
