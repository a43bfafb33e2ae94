"""Local files and folders in all supported formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from motet.core.errors import ConfigError, DataError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import DataConfig, load_corpus


def load(path: Path, task: str | None = None, **options: object) -> Corpus:
    return load_corpus(DataConfig(path=str(path), **options), Seed(0), task)  # type: ignore[arg-type]


def test_conll_file_is_read_for_tagging(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("Anna B-PER\nsleeps O\n\nin O\nOslo B-LOC\n\n" * 4)
    corpus = load(path)
    assert corpus.task == "tagging"
    assert ["Anna", "sleeps"] in list(corpus.column("words"))
    text = tmp_path / "b.txt"
    text.write_text(path.read_text())
    assert load(text, "tagging").task == "tagging"


def test_squad_json_is_read_for_qa(tmp_path: Path) -> None:
    qas = [{"id": str(i), "question": "who?", "answers": [{"text": "Anna", "answer_start": 0}]} for i in range(5)]
    path = tmp_path / "q.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [{"context": "Anna sleeps.", "qas": qas}]}]}))
    corpus = load(path)
    assert corpus.task == "qa"
    assert list(corpus.column("starts")) == [[0]] * 5


def test_answers_in_a_table_get_start_positions(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    rows = [
        {"passage": "Anna sleeps in Oslo.", "question": "where?", "gold": ["Oslo"]},
        {"passage": "Anna sleeps in Oslo.", "question": "who?", "gold": {"text": ["Anna"], "answer_start": [0]}},
        {"passage": "Anna sleeps in Oslo.", "question": "why?", "gold": []},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    corpus = load(path, columns={"context": "passage", "answers": "gold"})
    starts = dict(zip(corpus.column("question"), corpus.column("starts"), strict=True))
    assert starts == {"where?": [15], "who?": [0], "why?": []}


def test_answer_that_is_not_in_its_context_raises_an_error(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"context": "Anna sleeps.", "question": "where?", "answers": ["Rome"]}))
    with pytest.raises(DataError, match=r"q\.jsonl, line 1: answer 'Rome' is not in its context"):
        load(path)


def test_one_folder_per_label_is_read_for_classification(tmp_path: Path) -> None:
    for label in ("good", "bad"):
        (tmp_path / "texts" / label).mkdir(parents=True)
        for i in range(3):
            (tmp_path / "texts" / label / f"{i}.txt").write_text(f"{label} text {i}")
    corpus = load(tmp_path / "texts")
    assert (corpus.task, len(corpus)) == ("classification", 6)
    assert all(t.startswith(label) for t, label in zip(corpus.column("text"), corpus.column("label"), strict=True))


def test_one_folder_or_file_per_client_names_the_clients(tmp_path: Path) -> None:
    for client in ("north", "south"):
        (tmp_path / "wards" / client).mkdir(parents=True)
        (tmp_path / "wards" / client / "notes.csv").write_text(f"text,label\n{client} one,a\n{client} two,b\n")
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "files" / f"{client}.csv").write_text(f"text,label\n{client} one,a\n{client} two,b\n")
    for folder in ("wards", "files"):
        corpus = load(tmp_path / folder)
        assert set(corpus.column("client")) == {"north", "south"}
        assert all(t.startswith(c) for t, c in zip(corpus.column("text"), corpus.column("client"), strict=True))


def test_parquet_file_is_read(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"body": ["one", "two", "three"], "kind": ["a", "b", "a"]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    corpus = load(tmp_path / "t.parquet", text="body", label="kind")
    assert set(corpus.column("text")) == {"one", "two", "three"}
    (tmp_path / "broken.parquet").write_bytes(b"PAR0")
    with pytest.raises(DataError, match=r"broken\.parquet: not a valid Parquet file"):
        load(tmp_path / "broken.parquet")


def test_text_file_is_read_for_language_modeling(tmp_path: Path) -> None:
    path = tmp_path / "l.txt"
    path.write_text("one\n\ntwo\nthree\n")
    assert load(path).task == "lm"
    assert len(load(path)) == 3


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
def test_task_is_inferred_from_the_columns(header: str, row: str, task: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n{row}\n{row}\n")
    assert load(path).task == task


def test_csv_with_semicolons_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text;label\none, two;a\nthree;b\n")
    corpus = load_corpus(DataConfig(path=str(tmp_path / "t.csv"), test_share=0.5), Seed(0))
    assert sorted(corpus.column("text")) == ["one, two", "three"]


def test_label_column_is_read_as_score_for_regression(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\na,1.5\nb,2\nc,much\n")
    with pytest.raises(DataError, match=r"t\.csv, line 4: column 'score' holds 'much'; expected a number"):
        load(path, "regression")


def test_hub_dataset_is_read_from_a_folder(tmp_path: Path) -> None:
    for split, rows in (("train", ["x,a", "y,b", "z,a"]), ("test", ["w,b"])):
        (tmp_path / "hub").mkdir(exist_ok=True)
        (tmp_path / "hub" / f"{split}.csv").write_text("\n".join(["sentence,kind", *rows]))
    config = DataConfig(name=str(tmp_path / "hub"), text="sentence", label="kind")
    corpus = load_corpus(config, Seed(0))
    assert (corpus.num_train, len(corpus), corpus.task) == (3, 4, "classification")
    with pytest.raises(
        DataError,
        match=r"hub:train: its columns are sentence, kind; expected those of a task, .* data.text=… data.label=…",
    ):
        load_corpus(DataConfig(name=str(tmp_path / "hub")), Seed(0))


def test_missing_corpus_files_raise_an_error_that_lists_the_searched_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOTET_DATA", "elsewhere")
    with pytest.raises(
        ConfigError,
        match=r"searched elsewhere/20news, data/20news, \.data/20news\)\. Put them there, or set data.path=",
    ):
        load_corpus(DataConfig(name="20news"), Seed(0))


def test_unknown_names_and_invalid_values_raise_an_error() -> None:
    with pytest.raises(ConfigError, match=r"there is no column 'contxt'.*Did you mean 'context'"):
        DataConfig(path="x.csv", columns={"contxt": "a"})
    with pytest.raises(ConfigError, match=r"data\.test_share is 1\.5"):
        DataConfig(path="x.csv", test_share=1.5)
    with pytest.raises(ConfigError, match=r"there is no corpus '20new'\. Did you mean '20news'"):
        load_corpus(DataConfig(name="20new"), Seed(0))
