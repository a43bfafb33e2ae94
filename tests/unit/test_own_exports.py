"""Files as other programs write them: what would be read wrongly is refused, or a finding."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow
import pyarrow.parquet
import pytest

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.inspection.corpus_inspection import inspect_corpus
from motet.datasets.inspection.findings import find_problems
from motet.datasets.load_corpus import DataConfig, read_corpus

LABELS = ("heart", "lung", "skin")


def read(path: Path, content: str | bytes, task: str | None = None, **options: Any) -> Corpus:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_corpus(DataConfig(path=str(path), **options), task)


def table(header: list[str], *columns: list[Any], count: int = 60) -> str:
    """Return a CSV file. Its first column has texts, the others repeat their values."""
    stream = io.StringIO()
    rows = ([f"the text of case {i}", *(values[i % len(values)] for values in columns)] for i in range(count))
    csv.writer(stream).writerows([header, *rows])
    return stream.getvalue()


def json_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def find(corpus: Corpus) -> dict[str, bool]:
    """Return the messages of all findings, and whether each stops a run."""
    return {finding.message: finding.is_mistake for finding in find_problems(inspect_corpus(corpus))}


@pytest.mark.parametrize("column", ["target", "tags", "source", "second", "answers", "topic"])
def test_a_second_column_is_never_passed_over_for_language_modeling(column: str, tmp_path: Path) -> None:
    content = table(["text", column], list(LABELS))
    with pytest.raises(DataError, match=rf"would be language modeling; name the column .* example data.label={column}"):
        read(tmp_path / "t.csv", content)
    corpus = read(tmp_path / "t.csv", content, "lm")
    assert corpus.report.unused_columns == (column,)
    assert list(corpus.report.columns) == ["text"]
    assert read(tmp_path / "t.csv", content, label=column).task == "classification"


def test_columns_that_a_task_does_not_read_are_named(tmp_path: Path) -> None:
    row = {"instruction": "list", "context": "a, b", "output": "a and b", "category": "qa"}
    assert read(tmp_path / "t.jsonl", json_lines([row] * 9)).report.unused_columns == ("context", "category")


def test_answers_of_prodigy_are_a_warning(tmp_path: Path) -> None:
    rows = [{"text": f"case {i}", "label": LABELS[i % 3], "_task_hash": i, "answer": "reject"} for i in range(60)]
    findings = find(read(tmp_path / "t.jsonl", json_lines(rows)))
    assert [stops for text, stops in findings.items() if "in which Prodigy writes accept, reject" in text] == [False]


def test_a_column_that_names_the_test_rows_is_a_warning(tmp_path: Path) -> None:
    content = table(["text", "label", "Split"], list(LABELS), ["train", "train", "train", "test"])
    message = "These columns are not read: 'Split'. If one names the test rows, write these rows"
    assert [stops for text, stops in find(read(tmp_path / "t.csv", content)).items() if message in text] == [False]
    (tmp_path / "test.csv").write_text(content.replace("case", "patient"))
    assert not find(read(tmp_path / "t.csv", content, test=str(tmp_path / "test.csv")))


def test_columns_that_belong_to_a_conversation_are_a_warning(tmp_path: Path) -> None:
    rows = [
        {"system": "be brief", "prompt": f"case {i}", "chosen": "a", "rejected": "b", "tools": []} for i in range(60)
    ]
    findings = find(read(tmp_path / "t.jsonl", json_lines(rows)))
    (message,) = findings
    assert message.startswith("These columns are not read, so the model does not see them: 'system', 'tools'.")


def turns(*contents: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[i % 2], "content": content} for i, content in enumerate(contents)]


QUESTION, ANSWER = "what did the doctor say", "to rest for a week"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"messages": turns("a", "b", "c", "d")},
            "9 conversations have several answers, and only the last one is learned",
        ),
        ({"messages": [{"role": "nurse", "content": "a"}, *turns("b", "c")]}, "user, assistant, tool: nurse (9)"),
        ({"prompt": QUESTION, "completion": f"{QUESTION}? {ANSWER}"}, "9 of 9 answers begin with their prompt"),
        ({"prompt": f"[INST] {QUESTION} [/INST]", "completion": ANSWER}, "a chat template, such as [INST]"),
        ({"prompt": QUESTION, "completion": f"{ANSWER}<|im_end|>"}, "a chat template, such as <|im_end|>"),
        (
            {"prompt": QUESTION, "chosen": f"\n{QUESTION} {ANSWER}", "rejected": "b"},
            "9 of 9 answers begin with their prompt",
        ),
        ({"prompt": f"\n\nHuman: {QUESTION}\n\nAssistant:", "chosen": "a", "rejected": "b"}, "such as Human:"),
        (
            {"instruction": "list", "input": "nan", "output": "a"},
            "The column input holds 'nan' (9), which becomes part of",
        ),
    ],
)
def test_what_is_wrong_with_conversations_is_a_warning(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    findings = find(read(tmp_path / "t.jsonl", json_lines([row] * 9)))
    assert [stops for text, stops in findings.items() if message in text] == [False]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": turns("a", "b")},
        {"messages": [{"role": "system", "content": "a"}, *turns("b", "c")]},
        {"prompt": turns("a", "b", "c"), "chosen": "d", "rejected": "e"},
        {"instruction": "answer: yes or no", "input": "", "output": "no"},
    ],
)
def test_ordinary_conversations_have_no_findings(row: dict[str, Any], tmp_path: Path) -> None:
    assert not find(read(tmp_path / "t.jsonl", json_lines([row] * 9), test_share=0.0))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"chosen": "a", "rejected": "b"}, "there is no column prompt. Name it with data.columns.prompt=…"),
        (
            {"messages": [*turns("a"), {"role": "assistant", "content": "b", "weight": 0}]},
            "or a last answer of weight 0",
        ),
    ],
)
def test_conversations_that_cannot_be_learned_as_they_are_meant(
    row: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path / "t.jsonl", json_lines([row] * 9))
    assert message in str(error.value)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "xlsx"])
def test_an_instruction_needs_no_input(suffix: str, tmp_path: Path) -> None:
    rows = [{"instruction": f"task {i}", "input": "x" if i % 3 == 1 else None, "output": "y"} for i in range(9)]
    path = tmp_path / f"t.{suffix}"
    if suffix == "jsonl":
        path.write_text(json_lines(rows))
    elif suffix == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        book = openpyxl.Workbook()
        for values in (list(rows[0]), *(list(row.values()) for row in rows)):
            book.active.append(values)
        book.save(path)
    corpus = read_corpus(DataConfig(path=str(path), test_share=0.0))
    assert list(corpus.column("prompt")) == [f"task {i}\n\nx" if i % 3 == 1 else f"task {i}" for i in range(9)]


def test_answers_whose_position_is_a_guess_are_counted(tmp_path: Path) -> None:
    contexts = [f"In {1900 + i} it left at noon, and it came back at noon." for i in range(9)]
    rows = [{"context": context, "question": "When did it come?", "answers": "noon"} for context in contexts]
    (message,) = find(read(tmp_path / "t.jsonl", json_lines(rows), test_share=0.0))
    assert message.startswith("9 answers without a position that occur several times: the first is taken")
    starts = [context.rindex("noon") for context in contexts]
    named = [{**row, "answer_start": start} for row, start in zip(rows, starts, strict=True)]
    corpus = read(tmp_path / "t.jsonl", json_lines(named), columns={"starts": "answer_start"}, test_share=0.0)
    assert [row[0] for row in corpus.column("starts")] == starts
    assert not find(corpus)
    moved = [{**row, "answer_start": row["answer_start"] + 2} for row in named]
    (message,) = find(read(tmp_path / "t.jsonl", json_lines(moved), columns={"starts": "answer_start"}, test_share=0.0))
    assert message.startswith("9 answers moved to the nearest of several occurrences (positions count characters")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json_lines([{"text": "a", "label": "b"}] * 3), "its lines are JSON. Give the file the suffix .jsonl"),
        (json.dumps([{"text": "a"}], indent=1), "its lines are JSON"),
        (table(["review", "mood"], ["good", "bad"]), "its lines are rows of a table. Give the file the suffix .csv"),
        (table(["review", "mood"], ["good", "bad"]).partition("\n")[2], "its lines are rows of a table"),
        ("".join(f"__label__good the text of case {i}\n" for i in range(9)), "begin with labels of fastText"),
        ("<!DOCTYPE html>\n<html><body>Sign in</body></html>\n", "are a web page or XML"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 9\n", "a pointer of Git LFS"),
    ],
)
def test_lines_that_are_no_texts_are_refused(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path / "t.txt", content)
    assert message in str(error.value)


def test_lines_with_commas_are_texts(tmp_path: Path) -> None:
    assert read(tmp_path / "t.txt", "".join(f"a line, no. {i}, of a text\n" for i in range(20))).task == "lm"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", json_lines([{"text": "a", "label": "b"}] * 3), "its lines are JSON. Give the file the suffix .jsonl"),
        ("t.tsv", table(["text", "label"], ["a", "b"]), "if ',' separates the columns, set data.delimiter to it"),
        ("t.tsv", '"text"\t"label"\n"a"\t"b"\n', "if quotation marks enclose the fields, set data.quoting=csv"),
        ("t.parquet", "version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 9\n", "a pointer of Git LFS"),
    ],
)
def test_files_with_a_wrong_suffix_say_what_they_hold(name: str, content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path / name, content)
    assert message in str(error.value)


def test_an_array_of_objects_is_read_whatever_the_suffix(tmp_path: Path) -> None:
    rows = [{"text": f"case {i}", "label": LABELS[i % 3]} for i in range(9)]
    for indent in (None, 1):
        corpus = read(tmp_path / "t.jsonl", json.dumps(rows, indent=indent), test_share=0.0)
        assert list(corpus.column("text")) == [row["text"] for row in rows]


def test_files_of_texts_and_of_their_labels_are_a_warning(tmp_path: Path) -> None:
    for name in ("train_text", "train_labels"):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name} {i}\n" for i in range(20)))
    findings = find(read_corpus(DataConfig(path=str(tmp_path))))
    assert any("'train_labels.txt' and 'train_text.txt' both have 20 lines" in message for message in findings)


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("Ann{i} NNP B-NP B-PER\nleft VBD O O\n\n", "column 3 of 4 also holds tags. Only those of column 4 are read"),
        ("Ann{i}\tB-PER\tO\nLee\tI-PER\tB-LOC\n\n", "column 2 of 3 also holds tags"),
        ("Ann{i} B-PER\nLee Jr I-PER\n\n", "the lines have 2 columns (20), 3 columns (20)"),
    ],
)
def test_columns_of_conll_files_that_are_not_read_are_a_warning(sentence: str, message: str, tmp_path: Path) -> None:
    findings = find(read(tmp_path / "t.conll", "".join(sentence.format(i=i) for i in range(20))))
    assert [stops for text, stops in findings.items() if message in text] == [False]


def test_ordinary_columns_of_conll_files_have_no_findings(tmp_path: Path) -> None:
    content = "-DOCSTART- -X- O\n\n" + "".join(f"Ann{i} NNP B-PER\nleft VBD O\n\n" for i in range(20))
    assert not find(read(tmp_path / "t.conll", content))


def test_one_long_sentence_is_a_warning(tmp_path: Path) -> None:
    findings = find(read(tmp_path / "t.conll", "".join(f"Ann{i} B-PER\nleft O\n" for i in range(20))))
    assert findings == {"t.conll: there is one sentence. Check that empty lines separate the sentences.": False}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Ann PER", "tag 'PER' of 'Ann' is invalid in BIO, the scheme of the file; expected O, or one of B-, I-"),
        ("Ann O\nLee I-PER", "Set data.repair=bio to turn such tags into B- tags"),
        ("# id 17", "If the line is a comment, remove it"),
    ],
)
def test_invalid_tags_say_what_to_do(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path / "t.conll", f"Bo B-PER\nran O\n\n{line}\nran O\n")
    assert message in str(error.value)
