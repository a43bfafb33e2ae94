"""The forms in which people have their data: each is read as it is meant, or refused, or read with a warning."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.inspection.corpus_inspection import inspect_corpus
from motet.datasets.inspection.findings import find_problems
from motet.datasets.load_corpus import DataConfig, read_corpus

PAIR = {"instruction": "add 1 and 2", "output": "3"}
QUESTION = {"context": "The boat left at noon.", "question": "When?"}


def read(path: Path, content: str | bytes, task: str | None = None, **options: Any) -> Corpus:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_corpus(DataConfig(path=str(path), **options), task)


def table(labels: list[str], count: int = 60) -> str:
    stream = io.StringIO()
    csv.writer(stream).writerows([["text", "label"], *([f"text {i}", labels[i % len(labels)]] for i in range(count))])
    return stream.getvalue()


def find(corpus: Corpus) -> dict[str, bool]:
    """Return the messages of all findings, and whether each stops a run."""
    return {finding.message: finding.is_mistake for finding in find_problems(inspect_corpus(corpus))}


def squad(**question: Any) -> str:
    answers = [{"text": "noon", "answer_start": 17}]
    rows = [{"id": str(i), "question": "When?", "answers": answers, **question} for i in range(2)]
    return json.dumps({"data": [{"paragraphs": [{"context": QUESTION["context"], "qas": rows}]}]})


def turns(*contents: str, first: str = "user") -> list[dict[str, str]]:
    roles = ("user", "assistant") if first == "user" else ("assistant", "user")
    return [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]


@pytest.mark.parametrize("notation", ["a,b", "a , b", '["a", "b"]', "['a', 'b']"])
def test_several_labels_are_read_in_their_notations(notation: str, tmp_path: Path) -> None:
    corpus = read(tmp_path / "t.csv", table([notation, "b"]), "multi_label")
    assert {tuple(labels) for labels in corpus.column("labels")} == {("a", "b"), ("b",)}


@pytest.mark.parametrize("notation", ["['a' 'b']", "{'a', 'b'}", "('a', 'b')", "[a, b]"])
def test_lists_of_labels_in_another_notation_are_refused(notation: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t.csv, line 2: column 'labels' holds .* or a text with ',' between them"):
        read(tmp_path / "t.csv", table([notation, "b"]), "multi_label")


def test_lists_of_words_and_brackets_that_are_words(tmp_path: Path) -> None:
    rows = [["words", "tags"], ["['Ann', 'left']", "['B-PER', 'O']"], ["( Ann )", "O B-PER O"]]
    stream = io.StringIO()
    csv.writer(stream).writerows(rows)
    corpus = read(tmp_path / "t.csv", stream.getvalue(), test_share=0.0)
    assert list(corpus.column("words")) == [["Ann", "left"], ["(", "Ann", ")"]]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["cafe\u0301", "caf\u00e9", "tea"], "differ only in case, spaces or characters that look alike"),
        (["tea", "t\u200bea", "x"], "differ only in case, spaces or characters that look alike"),
        (["sci-fi", "sci\u2011fi", "x"], "differ only in case, spaces or characters that look alike"),
        (["01", "1", "2"], "differ only in case, spaces or characters that look alike"),
        (["label", "a", "b"], "the label 'label' ("),
        (["#N/A", "a", "b"], "labels that look like missing values"),
    ],
)
def test_mistakes_in_labels_stop_a_run(labels: list[str], message: str, tmp_path: Path) -> None:
    findings = find(read(tmp_path / "t.csv", table(labels)))
    assert [stops for text, stops in findings.items() if message in text] == [True]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (table(["a|b", "a", "b"]), {}, "labels that look like several labels"),
        (table(["a", "b"]) + "text,postive\n", {"test_share": 0.0}, "'postive' (1): labels of a single row"),
        (table(["a", "b"]) + "nan,a\n", {}, "1 of 61 texts look like missing values"),
        (table(["a", "b"]), {"text": "1", "label": "2"}, "the first row of a table is data"),
        ((table(["a", "b"]) + "für,a\n").encode("cp1252"), {}, "t.csv: the encoding cp1252 is a guess"),
        (table(["a ", "b"]), {}, "30 labels with blanks around them"),
        (table(["a", "b"]).replace("text 1", "Tom &amp; Ann 1"), {}, "11 of 60 texts have escape sequences"),
        (table(["a", "b"]).replace("text 1", "caf\\u00e9 1"), {}, "11 of 60 texts have escape sequences"),
        (table(["a", "b"]).replace("text 1", "it rains.\\nWe 1"), {}, "11 of 60 texts have escape sequences"),
        (
            "text,label\r\n" + "b'one',a\r\nb'two',b\r\n" * 9,
            {"test_share": 0.0},
            "18 of 18 texts are written as values of Python",
        ),
        (
            "text,score\na,1.234\nb,900\nc,12.500\n",
            {"test_share": 0.0},
            "2 of 3 scores are numbers such as 1.234, which are",
        ),
        ("words,tags\n" + "Ann,B-PER\nleft,O\n" * 10, {"test_share": 0.0}, "20 of 20 sentences have one word."),
    ],
    ids=[
        "joined",
        "rare",
        "missing",
        "header",
        "encoding",
        "blanks",
        "html",
        "unicode",
        "line-break",
        "list",
        "thousands",
        "words",
    ],
)
def test_what_may_be_read_wrongly_is_a_warning(
    content: str | bytes, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    findings = find(read(tmp_path / "t.csv", content, **options))
    assert [stops for text, stops in findings.items() if message in text] == [False]


@pytest.mark.parametrize(
    "text", ["добрый день", "καλημέρα κόσμε", "שלום עולם", "你好世界", "élève"], ids=["ru", "el", "he", "zh", "fr"]
)
@pytest.mark.parametrize("codec", ["latin-1", "cp1252"])
def test_utf8_that_was_decoded_wrongly_stops_a_run(text: str, codec: str, tmp_path: Path) -> None:
    wrong = text.encode().decode(codec, "ignore")
    findings = find(read(tmp_path / "t.csv", table(["a", "b"]).replace("text ", f"{wrong} ")))
    assert findings["60 of 60 texts look like UTF-8 that was decoded as Latin-1, such as 'Ã©' for 'é' (100.0 %)."]
    right = find(read(tmp_path / "t.csv", table(["a", "b"]).replace("text ", f"{text} «CAFÉ» ")))
    assert not any("look like UTF-8" in message for message in right)


@pytest.mark.parametrize(
    ("name", "content", "task", "message"),
    [
        ("t.csv", table(["1_000", "2"]), "regression", "line 2: column 'score' holds '1_000'; expected a number"),
        ("t.csv", table(["café", "prêt-à", "x"]).encode("cp850"), None, "the text is not UTF-8. Set data.encoding"),
        ("t.txt", table(["a", "b"]), None, "its lines have columns"),
        ("t.json", '{"text": {"0": "a"}, "label": {"0": "x"}}', None, "one object with the keys text, label; expected an array"),
        ("t.jsonl", '{"text": "a", "labels": [0, 1, 0]}\n' * 3, None, "expected each label once"),
        ("t.csv", 'text,labels\na,"0,1,0"\n', "multi_label", "line 2: column 'labels' holds '0,1,0'; expected each label once"),
        ("t.csv", "text,labels\na,1\nb,0 0 1\n", "multi_label", "line 3: column 'labels' holds '0 0 1'; expected each label once"),
        ("t.conll", "1 Ann B-PER\n2 left O\n\n1 Bo B-PER\n2 ran O\n", None, "the first column of a sentence is 1, 2,"),
        ("t.conll", "d1 Ann B-PER\nd1 left O\n\nd1 Bo B-PER\nd1 ran O\n", None, "the first column of a sentence is d1, d1,"),
        ("t.conll", "# id=1 en\nAnn B-PER\nleft O\n\nBo B-PER\nran O\n", None, "If the line is a comment, remove it."),
        ("t.conll", "word tag\nAnn B-PER\nleft O\n\nBo B-PER\nran O\n", None, "Fix the tag. If it is a header, remove it."),
        ("t.conll", "Ann B-PER\nleft O\n\n#2\nBo B-PER\nran O\n", None, "line 4: '#2' has 1 of at least 2 columns"),
        ("t.txt", '"text" "label"\n' + "".join(f'"{i}" "case {i}" "{"ab"[i % 2]}"\n' for i in range(9)), None, "rows of a table with blanks"),
        ("t.json", squad(answers=[{"text": "noon", "answer_start": "17"}]), None, "'answer_start' is '17'; expected a whole"),
        ("t.json", squad(is_impossible="false"), None, "'is_impossible' is 'false'; expected true or false"),
        ("t.jsonl", json.dumps({"prompt": "a", "completion": "b", "label": False}), None, "'label' would not be used"),
        ("t.jsonl", json.dumps({"messages": [{"role": "assistant", "content": "", "tool_calls": [1]}]}), None, "without calls"),
        ("t.jsonl", json.dumps({"chosen": turns("a", "b"), "rejected": turns("c", "d")}), None, "different conversations"),
        ("t.jsonl", json.dumps({"prompt": str(turns("a")), "completion": "b"}), None, "list of messages (in a text: as JSON)"),
        ("t.jsonl", json.dumps({"prompt": "z", "chosen": turns("a", "b"), "rejected": turns("a", "d")}), None, "does not begin with"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_as_it_is_meant_is_refused(
    name: str, content: str | bytes, task: str | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path / name, content, task)
    assert message in str(error.value)


def test_conversations_in_the_forms_of_trl_and_sharegpt(tmp_path: Path) -> None:
    rows = [
        {"prompt": turns("a"), "completion": turns("b", first="assistant")},
        {"prompt": "a", "completion": "b"},
    ]
    corpus = read(tmp_path / "t.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert (list(corpus.column("prompt")), list(corpus.column("completion"))) == (["a", "a"], ["b", "b"])
    shared = [{"from": "Human", "value": "a"}, {"from": "chatgpt", "value": "b"}, {"from": "human", "value": "thanks"}]
    corpus = read(tmp_path / "t.jsonl", (json.dumps({"messages": shared}) + "\n") * 2)
    assert (corpus.column("prompt")[0], corpus.column("completion")[0]) == ("a", "b")
    assert "2 conversations with turns after the last answer, which were removed." in find(corpus)
    answers = {"chosen": turns("b", "c", "d", first="assistant"), "rejected": turns("b", "c", "e", first="assistant")}
    corpus = read(tmp_path / "t.jsonl", (json.dumps({"prompt": turns("a"), **answers}) + "\n") * 2)
    assert corpus.column("prompt")[0] == ["a", "b", "c"]
    in_texts = {name: json.dumps(value) for name, value in {"prompt": turns("a"), **answers}.items()}
    texts = read(tmp_path / "t.jsonl", (json.dumps(in_texts) + "\n") * 2)
    assert [list(texts.column(name)) for name in texts.columns] == [list(corpus.column(name)) for name in texts.columns]
    assert (
        read(tmp_path / "t.jsonl", json.dumps({"prompt": "a", "completion": '[{"role": "nurse"}]'})).task == "instruct"
    )


def test_texts_of_messages_that_are_not_read_are_counted(tmp_path: Path) -> None:
    thoughts = [turns("a")[0], {"role": "assistant", "content": "b", "reasoning_content": "because"}]
    findings = find(read(tmp_path / "t.jsonl", (json.dumps({"messages": thoughts}) + "\n") * 2))
    assert any(
        message.startswith("Messages have fields that are not read: reasoning_content (2).") for message in findings
    )


def test_answers_that_are_not_used_are_counted(tmp_path: Path) -> None:
    corpus = read(tmp_path / "t.json", squad(is_impossible=True))
    assert list(corpus.column("answers")) == [[], []]
    assert any(message.startswith("2 answers removed because they are empty, or because") for message in find(corpus))


def test_equal_answers_of_a_preference_stop_a_run(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"prompt": f"p {i}", "chosen": "b", "rejected": "b"}) + "\n" for i in range(9))
    assert find(read(tmp_path / "t.jsonl", rows))[
        "9 of 9 rows have the same value twice: chosen and rejected, or both texts of a pair, are equal."
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["mytrain.csv", "mytest.csv"], "seem to be training and test files, but would be the files of clients"),
        (["train.csv", "train (1).csv", "test.csv"], "'train.csv' and 'train (1).csv' are for the same split"),
    ],
)
def test_files_that_may_be_splits_are_never_clients(names: list[str], message: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text(table(["a", "b"]))
    with pytest.raises(DataError) as error:
        read_corpus(DataConfig(path=str(tmp_path)))
    assert message in str(error.value)


def test_names_of_splits_and_empty_label_folders(tmp_path: Path) -> None:
    for name, count in (("trainset.csv", 30), ("devset.csv", 10), ("testset.csv", 20)):
        (tmp_path / name).write_text(table(["a", "b"], count))
    corpus = read_corpus(DataConfig(path=str(tmp_path)))
    assert (corpus.num_train, len(corpus), "client" in corpus.columns) == (30, 50, False)
    for label in ("ham", "spam"):
        read(tmp_path / "mail" / label / "1.txt", label, "lm", test_share=0.0)
    (tmp_path / "mail" / "other").mkdir()
    assert sorted(read_corpus(DataConfig(path=str(tmp_path / "mail"))).column("label")) == ["ham", "spam"]


def test_splits_of_a_saved_dataset_that_mean_the_same_are_refused(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "val", "validation"]}))
    with pytest.raises(DataError, match="the splits 'val' and 'validation' mean the same"):
        read_corpus(DataConfig(path=str(tmp_path)))
