"""A random corpus, written in any format, encoding and compression, is read back as it is."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.own_files import BINARY_FORMATS, COMPRESSIONS, TEXT_FORMATS, Rows, write_compressed

from motet.datasets import delimited_arrow, json_arrow
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import DataConfig, read_corpus

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-be", "latin-1", "cp1251", "shift_jis", "gb18030")
MARKED = ("utf-8", "utf-8-sig", "utf-16", "utf-32")  # recognized without data.encoding
CHARACTERS = "aZ09 \"'\\,;|éßЖяかж中\u2028\u2029\x0b\x0c\x1c\x85\u00a0\U0001f600\r\n\t#=-_[]{}:"


EXCLUDED = {".tsv": "\r\n\t", ".xlsx": "\x0b\x0c\x1c\r=\n"}  # the format does not have them


def is_encodable(character: str, encoding: str) -> bool:
    try:
        return character.encode(encoding).decode(encoding) == character
    except UnicodeError:
        return False


@st.composite
def corpora(draw: st.DrawFn, suffix: str, encoding: str = "utf-8") -> Rows:
    characters = [c for c in CHARACTERS if c not in EXCLUDED.get(suffix, "") and is_encodable(c, encoding)]
    texts = st.text(st.sampled_from(characters), max_size=12)
    names = texts.map(lambda text: text.strip() or "a")
    if suffix not in (".tsv", ".csv", ".csv with semicolons", ".xlsx") and draw(st.booleans()):
        labels: st.SearchStrategy[Any] = st.integers(-3, 3)
    else:
        labels = names
    text = texts.map(lambda text: text or "a") if suffix == ".xlsx" else texts
    row = st.fixed_dictionaries({"text": text, "label": labels, "client": names})
    return draw(st.lists(row, min_size=1, max_size=8))


def read(path: Path, encoding: str | None) -> Corpus:
    return read_corpus(DataConfig(path=str(path), test=str(path), encoding=encoding))


def assert_rows(corpus: Corpus, rows: Rows) -> None:
    assert corpus.task == "classification"
    for name in ("text", "label", "client"):
        assert list(corpus.column(name)) == [str(row[name]) for row in rows] * 2
    assert corpus.report.num_dropped == 0


@pytest.mark.parametrize("kind", list(TEXT_FORMATS))
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_text_formats_read_back_the_same(kind: str, data: st.DataObject) -> None:
    encoding = data.draw(st.sampled_from(ENCODINGS))
    compression = data.draw(st.sampled_from([*COMPRESSIONS, ".zip"]))
    rows = data.draw(corpora(kind, encoding))
    content = TEXT_FORMATS[kind](rows).encode(encoding)
    with tempfile.TemporaryDirectory() as folder:
        path = write_compressed(Path(folder), f"t{kind.split(maxsplit=1)[0]}", content, compression)
        assert_rows(read(path, None if encoding in MARKED else encoding), rows)


@pytest.mark.parametrize("kind", list(BINARY_FORMATS))
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_binary_formats_read_back_the_same(kind: str, data: st.DataObject) -> None:
    pytest.importorskip("openpyxl")
    compression = data.draw(st.sampled_from([*COMPRESSIONS, ".zip"]))
    rows = data.draw(corpora(kind))
    with tempfile.TemporaryDirectory() as folder:
        assert_rows(
            read(write_compressed(Path(folder), f"t{kind}", BINARY_FORMATS[kind](rows), compression), None), rows
        )


@pytest.mark.parametrize("kind", [".csv", ".csv with semicolons", ".tsv", ".jsonl"])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_rows_that_cross_blocks_are_read_back_the_same(kind: str, data: st.DataObject) -> None:
    """Blocks of a few bytes give the same rows and line numbers as one block."""
    rows = data.draw(corpora(kind))
    size = data.draw(st.integers(1, 60))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited_arrow, "BLOCK_SIZE", size)
        patch.setattr(json_arrow, "BLOCK_SIZE", 512 + size)
        path = Path(folder) / f"t{kind.split(maxsplit=1)[0]}"
        path.write_bytes(TEXT_FORMATS[kind](rows).encode())
        assert_rows(read(path, None), rows)


TOKENS = st.text(st.sampled_from("aéЖ中-_'\".,\u2028\x85😀"), min_size=1, max_size=5)


@given(
    st.lists(st.lists(st.tuples(TOKENS, st.sampled_from(["O", "B-X", "B-Y"])), min_size=1, max_size=5), min_size=1),
    st.sampled_from([".conll", ".txt", ".bio", ".anything"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    st.sampled_from(list(COMPRESSIONS)),
)
@example([[("\u2028", "O")]], ".txt", "utf-8", "")
@settings(max_examples=60, deadline=None)
def test_conll_reads_back_the_same(
    sentences: list[list[tuple[str, str]]], suffix: str, encoding: str, compression: str
) -> None:
    sentences = [[("Anna", "B-PER"), ("sleeps", "O")], *sentences]  # CoNLL is recognized by its tags
    content = "\n".join("".join(f"{word}\t{tag}\n" for word, tag in sentence) for sentence in sentences)
    with tempfile.TemporaryDirectory() as folder:
        corpus = read(write_compressed(Path(folder), f"t{suffix}", content.encode(encoding), compression), None)
    assert corpus.task == "tagging"
    assert list(corpus.column("words")) == [[word for word, _ in sentence] for sentence in sentences] * 2
    assert list(corpus.column("tags")) == [[tag for _, tag in sentence] for sentence in sentences] * 2


@given(
    st.lists(st.text(st.sampled_from(CHARACTERS.replace("\n", "")), max_size=12), min_size=1, max_size=8),
    st.sampled_from(MARKED),
    st.sampled_from([*COMPRESSIONS, ".zip"]),
)
@settings(max_examples=40, deadline=None)
def test_lines_of_text_read_back_the_same(texts: list[str], encoding: str, compression: str) -> None:
    lines = [text.rstrip("\r") for text in texts]
    expected = [line for line in lines if line.strip()]
    if not expected:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = write_compressed(Path(folder), "t.txt", "\n".join(lines).encode(encoding), compression)
        corpus = read_corpus(DataConfig(path=str(path), test=str(path)), "lm")
    assert list(corpus.column("text")) == expected * 2
    assert corpus.report.num_rows == 2 * len(lines) - 2 * (lines[-1] == "")
