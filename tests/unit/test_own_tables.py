"""Own tables: what must not be read wrongly in silence."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from motet.core.errors import ConfigError, DataError
from motet.datasets import text_files
from motet.datasets.corpus import Corpus
from motet.datasets.data_file import DataFile, ReadOptions
from motet.datasets.disk_arrays import GrowingArray
from motet.datasets.load_corpus import DataConfig, read_corpus
from motet.datasets.read_log import ReadLog


def read(path: Path, content: str | bytes | None = None, task: str | None = None, **options: Any) -> Corpus:
    """Write a file, and read it as training set; a copy is the test set, so that the order of the rows stays."""
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_corpus(DataConfig(path=str(path), test=str(path), **options), task)


def train_rows(corpus: Corpus, *names: str) -> list[tuple[Any, ...]]:
    columns = [list(corpus.column(name))[: corpus.num_train] for name in names]
    return list(zip(*columns, strict=True))


def json_lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_quotation_marks_in_tsv_are_text(tmp_path: Path) -> None:
    lines = ["text\tlabel", '"To be" he said\ta', 'a 12" disc\tb', '"open\ta', "next\tb", '"all"\ta']
    corpus = read(tmp_path / "t.tsv", "\n".join(lines))
    assert train_rows(corpus, "text", "label") == [tuple(line.split("\t")) for line in lines[1:]]
    assert "fields in quotation marks, which are part of the text: 1." in corpus.report.warnings[0]
    quoted = read(tmp_path / "q.tsv", 'text\tlabel\n"two\nlines"\ta\n', quoting="csv")
    assert train_rows(quoted, "text") == [("two\nlines",)]


def test_quotation_marks_in_csv_enclose_fields_whatever_the_delimiter_is(tmp_path: Path) -> None:
    for delimiter in ",;|\t":
        corpus = read(tmp_path / "t.csv", f'text{delimiter}label\n"a{delimiter}""b"""{delimiter}c\n')
        assert train_rows(corpus, "text", "label") == [(f'a{delimiter}"b"', "c")]


def test_fields_of_objects_are_columns(tmp_path: Path) -> None:
    rows = [
        {"doc": {"text": t, "by": {"name": "ann"}}, "label": "x", "doc.id": k} for k, t in enumerate(("one", "two"))
    ]
    names = {"text": "doc.text", "client": "doc.by.name", "columns": {"domain": "doc.id"}}
    for name, content in (("t.jsonl", json_lines(*rows)), ("t.json", json.dumps(rows))):
        corpus = read(tmp_path / name, content, **names)
        assert train_rows(corpus, "text", "label", "client", "domain") == [
            ("one", "x", "ann", "0"),
            ("two", "x", "ann", "1"),
        ]
        with pytest.raises(
            DataError, match=r"data.text names column 'doc.txt'; the file has doc.text, doc.by.name, label"
        ):
            read(tmp_path / name, text="doc.txt")
        with pytest.raises(DataError, match=r"expected one text; name a field of it, such as COLUMN.text"):
            read(tmp_path / name, text="doc")
        with pytest.raises(DataError, match=r"no task fits its columns label, doc.text, doc.by.name"):
            read(tmp_path / name)
    with pytest.raises(DataError, match=r"t.jsonl, line 2: column 'text' has no value, but t.jsonl, line 1 has one"):
        read(tmp_path / "t.jsonl", json_lines(rows[0], {"doc": None, "label": "x"}), text="doc.text")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\nHello, world,pos\n", "t.csv, line 2: the row has 3 fields, but there are 2 columns"),
        ("text,label\nok,pos\nHello\n", "t.csv, line 3: the row has 1 of 2 fields"),
        ('text,label\nok,a\n"open,b\nnext,a\n', "t.csv, lines 3 to 4: a field in quotation marks does not end"),
        ('text,label\n"a" b,c\n', "t.csv, line 2: a field in quotation marks does not end correctly"),
        ("text,label\na,1\nb,1.0\n", "t.csv, line 3: column 'label' holds '1.0', but t.csv, line 2 holds '1'"),
        ("text,text,label\na,b,c\n", "the header names column 'text' twice"),
        ("text,label\na,\n", "t.csv, line 2: column 'label' holds ''; expected a label"),
        ("text,label\na,\nb,x\nc, \n", "Fix or remove the row. 4 of 6 rows have none"),
        (
            "Export of May,,\nbody,topic,\na,x,\n",
            "if there is no header, give their numbers, such as data.text=2; if lines precede it, remove them",
        ),
        ("text,score\na,1\nb,nan\n", "t.csv, line 3: column 'score' holds 'nan'; expected a number"),
        ("text,labels\na,b\n", "With a text alone, the task would be language modeling; name the column"),
    ],
)
def test_broken_csv_is_an_error_with_its_line(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path / "t.csv", content)
    assert message in str(error.value)


def test_blanks_around_column_names_and_labels_are_removed(tmp_path: Path) -> None:
    corpus = read(tmp_path / "t.csv", "text, label\none, a\ntwo,a \nthree,a\n")
    assert corpus.task == "classification"
    assert set(corpus.column("label")) == {"a"}
    assert corpus.report.task_reason == "inferred from the columns text, label"
    spaces = read(tmp_path / "s.csv", "text,label\none,a \ntwo,a\n")
    assert set(spaces.column("label")) == {"a"}
    assert spaces.report.changes == {"labels with blanks around them, which were removed": 2}  # in train and test


def test_invisible_characters_around_column_names_are_removed(tmp_path: Path) -> None:
    corpus = read(tmp_path / "t.csv", "\ufeff\ufefftext,label\u200b\na,x\nb,y\n")
    assert train_rows(corpus, "text", "label") == [("a", "x"), ("b", "y")]


@pytest.mark.parametrize("end", ["", "e,y\n\n"], ids=["arrow", "python"])
def test_quotation_marks_after_a_blank_are_counted(end: str, tmp_path: Path) -> None:
    warnings = read(tmp_path / "t.csv", f'label,text\nx, "a"\ny,"""b"""\nx,""" c"\n{end}').report.warnings
    message = (
        "fields in quotation marks, which are part of the text: 1. Remove the blanks before them if they mark fields."
    )
    assert warnings == (f"t.csv: {message}",)


def test_quoted_fields_of_several_lines_are_counted(tmp_path: Path) -> None:
    corpus = read(tmp_path / "t.csv", 'text,label\n"one\ntwo, ""three""",a\nfour,b\n')
    assert train_rows(corpus, "text") == [('one\ntwo, "three"',), ("four",)]
    assert "rows of several lines: 1; the longest has 2 lines and starts at line 2" in corpus.report.notes[0]


def test_tables_without_a_header_have_columns_by_number(tmp_path: Path) -> None:
    rows = [("1", "first, row"), ("0", "second")]
    for name, content in (("t.csv", '1,"first, row"\n0,second\n'), ("t.tsv", "1\tfirst, row\n0\tsecond\n")):
        corpus = read(tmp_path / name, content, text="2", label="1")
        assert train_rows(corpus, "label", "text") == rows
    with pytest.raises(DataError, match=r"if there is no header, give their numbers, such as data\.text=2"):
        read(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"data\.text names column '5'; the file has 1, 2"):
        read(tmp_path / "t.csv", text="5", label="1")
    with_header = read(tmp_path / "h.csv", "a,b\none,x\n", text="1", label="2", header=True)
    assert train_rows(with_header, "text", "label") == [("one", "x")]


def test_any_json_row_may_bring_a_column(tmp_path: Path) -> None:
    rows = [{"text": "one"}, {"text": "two", "label": "a"}]
    message = r"t\.jsonl, line 1: column 'label' has no value, but t\.jsonl, line 2 has one"
    for order in (rows, rows[::-1]):
        with pytest.raises(DataError, match=message if order is rows else "line 2: column 'label' has no value"):
            read(tmp_path / "t.jsonl", json_lines(*order))
    late = [{"text": str(i), "label": "a"} for i in range(20_000)]
    with pytest.raises(DataError, match=r"t\.jsonl, line 20001: column 'label' has no value"):
        read(tmp_path / "t.jsonl", json_lines(*late, {"text": "x"}))


def test_null_and_missing_values_are_the_same(tmp_path: Path) -> None:
    corpus = read(
        tmp_path / "t.jsonl", json_lines({"text": "a", "label": "x", "client": None}, {"text": "b", "label": "y"})
    )
    assert set(corpus.columns) == {"text", "label"}
    with pytest.raises(DataError, match=r"line 2: column 'text' has no value"):
        read(tmp_path / "t.jsonl", json_lines({"text": "a", "label": "x"}, {"text": None, "label": "y"}))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": ["a", "b"], "label": "x"}], "line 1: column 'text' holds ['a', 'b']; expected one text, not a list of 2"),
        ([{"text": "a", "label": "x"}, {"text": "b", "label": ["x", "y"]}], "line 2: column 'label' holds ['x', 'y']; expected one value."),
        ([{"text": "a", "label": 1}, {"text": "b", "label": "1"}], "holds '1' (text), but t.jsonl, line 1 holds 1 (a number)"),
        ([{"text": "a", "label": 1}, {"text": "b", "label": True}], "holds True (true or false), but t.jsonl, line 1"),
        ([{"text": "a", "label": {"x": 1}}], "expected text or a number"),
        ([{"text": 3, "label": "x"}], "line 1: column 'text' holds 3; expected text"),
        ([{"text": "a", "label": math.nan}], "line 1: column 'label' holds"),
        ([{"words": "a b", "tags": "O"}], "line 1: 2 words have 1 tags"),
        ([{"words": [1, 2], "tags": ["O", "O"]}], "expected a list of strings"),
        ([{"source": "a", "target": ["x", "y"]}], "column 'target' holds ['x', 'y']; expected one text"),
    ],
)  # fmt: skip
def test_values_are_not_turned_into_strings(rows: list[dict[str, Any]], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path / "t.jsonl", json_lines(*rows))
    assert message in str(error.value)


def test_one_and_one_point_zero_are_one_label(tmp_path: Path) -> None:
    corpus = read(tmp_path / "t.jsonl", json_lines({"text": "a", "label": 1}, {"text": "b", "label": 1.0}))
    assert corpus.labels == ("1",)
    table = pa.table({"text": ["a", "b"], "label": pa.array([1.0, 2.0])})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet").labels == ("1", "2")


def test_parquet_values_are_checked(tmp_path: Path) -> None:
    def read_columns(**columns: pa.Array) -> Corpus:
        pyarrow.parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
        return read(tmp_path / "t.parquet")

    corpus = read_columns(text=pa.array([b"caf\xc3\xa9", b"b"]), label=pa.array(["x", "y"]).dictionary_encode())
    assert train_rows(corpus, "text", "label") == [("café", "x"), ("b", "y")]
    with pytest.raises(DataError, match=r"t\.parquet, row 1: column 'text' holds .*; expected text in UTF-8"):
        read_columns(text=pa.array([b"caf\xe9"]), label=pa.array(["x"]))
    with pytest.raises(DataError, match="column 'label' holds nan; expected a label"):
        read_columns(text=pa.array(["a", "b"]), label=pa.array([1.0, math.nan]))
    with pytest.raises(DataError, match="row 2: column 'label' has no value"):
        read_columns(text=pa.array(["a", "b"]), label=pa.array(["x", None]))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.jsonl", '{"text": "a", "label": "x"}\n{"text": "\\ud83d", "label": "x"}\n', r"line 2: \ud83d is half of a"),
        ("t.json", '[{"text": "\\udc00", "label": "x"}]', r"row 1: \udc00 is half of a surrogate pair"),
        ("t.jsonl", b'{"text": "a", "label": "x"}\n' * 3 + b'{"text": "\xff\xfe", "label":\n', "line 4: invalid JSON"),
        (
            "t.jsonl",
            '{"text": "a", "label": "x", "label": "y"}',
            "line 1: invalid JSON (an object has the name 'label' twice)",
        ),
        ("t.json", '[{"text": "a", "text": "b"}]', "invalid JSON (an object has the name 'text' twice)"),
        ("t.json", '[{"text": "a", "label": "x"}, {"text"', "t.json, after row 1: invalid JSON"),
        ("t.jsonl", "[" * 100_000, "line 1: invalid JSON"),
        ("t.jsonl", '{"text": "a", "label": "x"}\n\n[1]\n', "line 3: expected a JSON object, found list"),
        ("t.csv", "text,label\né,x\n".encode("utf-16")[:-1], "is invalid in utf-16-le (byte-order mark)"),
        ("t.txt", b"MZ\0\0\0\0\0\0\0\0", "the file is not text: 8 of its first 10 bytes are control characters"),
        (
            "t.csv",
            gzip.compress(b"text,label\na,b\n", mtime=0),
            "t.csv: the content is not text but .gz. Give the file this suffix",
        ),
    ],
)
def test_broken_files_are_a_sentence_with_the_line(
    name: str, content: str | bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path / name, content)
    assert message in str(error.value)


def test_encoding_is_recognized_and_reported(tmp_path: Path) -> None:
    rows = [("Käse für Ärzte", "ja"), ("naïve façade", "nein")]
    text = "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows)
    for encoding, detected in (
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("latin-1", "cp1252"),
        ("utf-16", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
    ):
        corpus = read(tmp_path / "t.csv", text.encode(encoding))
        assert train_rows(corpus, "text", "label") == rows
        assert corpus.report.files[0].encoding == detected
    configured = read(tmp_path / "t.csv", text.encode("mac-roman"), encoding="mac-roman")
    assert train_rows(configured, "text", "label") == rows
    assert configured.report.files[0].encoding_reason == "data.encoding"
    with pytest.raises(DataError, match=r"t\.csv, line 2: byte 0x8a is invalid in utf-8 \(data\.encoding\)"):
        read(tmp_path / "t.csv", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"data\.encoding is 'utf-9'"):
        read(tmp_path / "t.csv", encoding="utf-9")


def test_a_few_invalid_bytes_are_counted(tmp_path: Path) -> None:
    content = ("text,label\n" + "schön,a\n" * 30).encode() + b"sch\xf6n,a\n"
    corpus = read(tmp_path / "t.csv", content)
    assert set(corpus.column("text")) == {"schön"}
    assert corpus.report.replaced_bytes == 1


def test_latin1_json_lines_are_read(tmp_path: Path) -> None:
    corpus = read(tmp_path / "t.jsonl", '{"text": "für", "label": "é"}\n'.encode("latin-1"))
    assert train_rows(corpus, "text", "label") == [("für", "é")]


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    texts = ["a\u2028b", "c\x0cd", "e\x85f", "g\x1ch"]
    assert train_rows(read(tmp_path / "t.txt", "\n".join(texts)), "text") == [(text,) for text in texts]
    rows = [{"text": text, "label": "x"} for text in texts]
    content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    assert train_rows(read(tmp_path / "t.jsonl", content), "text") == [(text,) for text in texts]
    table = "text\tlabel\n" + "".join(f"{text}\tx\n" for text in texts)
    assert train_rows(read(tmp_path / "t.tsv", table), "text") == [(text,) for text in texts]
    words = read(tmp_path / "t.conll", "".join(f"{text} B-X\n" for text in texts))
    assert words.column("words")[0] == texts


@pytest.mark.parametrize("name", ["t.txt", "t.tsv", "t.data", "t"])
def test_conll_is_recognized_with_any_suffix(name: str, tmp_path: Path) -> None:
    corpus = read(tmp_path / name, "Anna\tB-PER\nsleeps\tO\n\nOslo\tB-LOC\n")
    assert corpus.task == "tagging"
    assert train_rows(corpus, "words", "tags")[0] == (["Anna", "sleeps"], ["B-PER", "O"])


def test_words_with_other_tags_are_not_read_as_texts(tmp_path: Path) -> None:
    content = "The DT\ncat NN\n\nsleeps VBZ\n"
    with pytest.raises(DataError, match="its lines have columns, like a table or words with tags that are not BIO"):
        read(tmp_path / "t.txt", content)
    assert read(tmp_path / "t.txt", content, "lm").task == "lm"


def test_stray_tags_are_repaired_on_request(tmp_path: Path) -> None:
    content = "Anna B-PER\nOslo I-LOC\n\nin O\nOslo I-LOC\nnow B-TIME\n"
    with pytest.raises(DataError, match=r"t\.conll, line 2: tag 'I-LOC' of 'Oslo' is invalid.*Set data\.repair=bio"):
        read(tmp_path / "t.conll", content)
    corpus = read(tmp_path / "t.conll", content, repair="bio")
    assert train_rows(corpus, "tags") == [(["B-PER", "B-LOC"],), (["O", "B-LOC", "B-TIME"],)]
    assert corpus.report.changes == {"stray I- tags turned into B- tags": 4}  # in train and test


def test_own_squad_file_is_split_by_passage(tmp_path: Path) -> None:
    def paragraph(number: int) -> dict[str, Any]:
        context = f"Passage {number} says yes."
        answers = [{"text": "yes", "answer_start": context.index("yes")}]
        return {
            "context": context,
            "qas": [{"id": f"{number}-{i}", "question": f"{i}?", "answers": answers} for i in range(4)],
        }

    path = tmp_path / "q.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph(i) for i in range(10)]}]}))
    corpus = read_corpus(DataConfig(path=str(path)))
    contexts = list(corpus.column("context"))
    assert (corpus.num_train, len(corpus)) == (32, 40)
    assert not set(contexts[: corpus.num_train]) & set(contexts[corpus.num_train :])
    rows = [{"context": c, "question": "?", "answers": ["yes"]} for c in contexts]
    table = tmp_path / "q.jsonl"
    table.write_text(json_lines(*rows))
    corpus = read_corpus(DataConfig(path=str(table)))
    contexts = list(corpus.column("context"))
    assert not set(contexts[: corpus.num_train]) & set(contexts[corpus.num_train :])


def test_guessed_task_is_explained_and_never_guessed_in_doubt(tmp_path: Path) -> None:
    assert read(tmp_path / "t.csv", "text\na\n").report.task_reason == "inferred from the column text"
    with pytest.raises(DataError, match=r"fit several tasks \(classification, regression\)\. Set task\.type"):
        read(tmp_path / "t.csv", "text,label,score\na,b,1\n")
    with pytest.raises(DataError, match=r"data\.label=sentiment, or set task\.type=lm"):
        read(tmp_path / "t.csv", "text,sentiment\na,b\n")
    assert read(tmp_path / "t.csv", task="lm").report.task_reason == "task.type"


def test_errors_after_rows_of_several_lines_have_the_right_line(tmp_path: Path) -> None:
    content = 'text,label\n"a\nb",x\n"c",y\n"d\n\ne",x\nf,\n'
    with pytest.raises(DataError, match=r"t\.csv, line 8: column 'label' holds ''"):
        read(tmp_path / "t.csv", content)
    corpus = read(tmp_path / "t.csv", content.replace("f,", "f,z"))
    assert train_rows(corpus, "text") == [("a\nb",), ("c",), ("d\n\ne",), ("f",)]
    assert "rows of several lines: 2; the longest has 3 lines and starts at line 5" in corpus.report.notes[0]


def test_blank_lines_and_delimiter_lines_are_skipped(tmp_path: Path) -> None:
    for content in ("\n\ntext,label\na,x\n\nb,y\n", "sep=,\ntext,label\na,x\nb,y\n", "text,label\r\na,x\r\n\r\nb,y"):
        assert train_rows(read(tmp_path / "t.csv", content), "text", "label") == [("a", "x"), ("b", "y")]
    with pytest.raises(DataError, match=r"line 4: column 'label' holds ''"):
        read(tmp_path / "t.csv", "text,label\na,x\n\nb,\n")
    with pytest.raises(DataError, match=r"line 2: a carriage return is within a field"):
        read(tmp_path / "t.csv", "text,label\na\rb,x\n")


def test_large_columns_move_to_a_temporary_file() -> None:
    array = GrowingArray(np.int32, memory_limit=64)
    for start in range(0, 100, 10):
        array.append(np.arange(start, start + 10))
    values = array.build()
    assert isinstance(values, np.memmap)
    assert values.tolist() == list(range(100))


def test_json_array_in_one_line_is_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "BLOCK_SIZE", 7)
    rows = [{"text": f"über {i} 😀 {'日本' * i}", "label": "ä"} for i in range(9)]
    content = json.dumps(rows, ensure_ascii=False)
    file = DataFile(tmp_path / "t.json", ReadOptions(), ReadLog(tmp_path))
    corpus = read(file.path, content)
    assert train_rows(corpus, "text") == [(row["text"],) for row in rows]
    blocks = list(file.read_blocks(may_cut_lines=True))
    assert "".join(blocks) == content
    assert max(map(len, blocks)) <= 10
