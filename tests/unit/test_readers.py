"""What holds for every reader, and for the files and parts they stand on."""

from __future__ import annotations

import bz2
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.corpus_readers import READERS
from motet.datasets.original_files import fields, found, lines_of, needed, records, table, text_of
from motet.datasets.splits import part_of, split_by, stacked, sub_corpora, told, whole

Put = Callable[..., Path]
EVERY = pytest.mark.parametrize("name", READERS)


@EVERY
def test_an_empty_folder_is_refused_with_what_was_expected(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        READERS[name](tmp_path)
    said = str(refused.value)
    assert said.startswith(f"{name}: there ")
    assert str(tmp_path) in said
    assert "; " in said


@EVERY
def test_a_folder_that_is_not_there_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=rf"{name}: '.*nowhere' does not exist; give the folder that holds the original files"
    ):
        READERS[name](tmp_path / "nowhere")


def test_a_file_in_place_of_a_folder_is_refused(put: Put) -> None:
    with pytest.raises(DataError, match="is a file; give the folder"):
        READERS["20news"](put("20news-bydate.tar.gz", ""))


@EVERY
def test_a_reader_says_what_it_reads_in_one_sentence(name: str) -> None:
    doc = READERS[name].__doc__ or ""
    assert doc.endswith(".")
    assert "\n" not in doc
    assert 40 < len(doc) < 122


def test_a_file_is_found_below_the_folder_and_packed(tmp_path: Path) -> None:
    inner = tmp_path / "unpacked" / "here"
    inner.mkdir(parents=True)
    (inner / "words.txt.bz2").write_bytes(bz2.compress("größer\n".encode()))
    path = found(tmp_path, "words.txt")
    assert path is not None
    assert text_of(path) == "größer\n"


def test_what_archivers_leave_behind_is_not_found(put: Put, tmp_path: Path) -> None:
    put("__MACOSX/train.csv", "rubbish")
    put(".git/train.csv", "rubbish")
    assert found(tmp_path, "train.csv") is None
    with pytest.raises(DataError, match=r"x: there is no file 'train.csv' \(nor dev.csv\) in .*; put it there"):
        needed("x", tmp_path, "train.csv", "dev.csv", hint="put it there")


def test_a_damaged_archive_is_an_error_one_can_mend(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(b"no gzip at all")
    with pytest.raises(DataError, match=r"a.txt.gz: the file cannot be read .* fetch it again"):
        text_of(tmp_path / "a.txt.gz")


def test_a_stray_latin_1_byte_harms_no_other_letter(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("naïve ".encode() + b"\xa315m")
    assert text_of(tmp_path / "a.txt") == "naïve £15m"


def test_a_byte_order_mark_and_windows_line_ends_vanish(put: Put) -> None:
    path = put("a.txt", "\ufeffone\r\ntwo\u2028still two\r\n")
    assert list(lines_of(path)) == [(1, "one"), (2, "two\u2028still two")]


def test_an_unbalanced_quote_harms_only_its_line() -> None:
    assert fields('1,"open,two') == ["1", "open,two"]
    assert fields("a\rb,c") == ["a b", "c"]
    assert fields("") == []


def test_a_quote_between_tabs_is_a_letter(put: Put) -> None:
    path = put("a.tsv", '\ufeffid\ttext\r\n1\t"open\r\n\r\n2\r\n3\ta\rb\r\n')
    left_out: Counter[str] = Counter()
    assert list(table(path, ("text",), left_out, "mine", tabs=True)) == [(2, ('"open',)), (5, ("a\rb",))]
    assert left_out == {"rows with missing columns": 1}


def test_rows_with_missing_columns_are_counted(put: Put) -> None:
    left_out: Counter[str] = Counter()
    path = put("a.csv", 'id,text\n1,"one\ntwo"\n2\n\n3,three\n')
    assert [values for _, values in table(path, ("text", "id"), left_out, "mine")] == [
        ("one\ntwo", "1"),
        ("three", "3"),
    ]
    assert left_out == {"rows with missing columns": 1}


def test_a_field_longer_than_csv_allows_is_read(put: Put) -> None:
    long = "x" * 200_000
    assert next(table(put("a.csv", f"text\n{long}\n"), ("text",), Counter(), "mine")) == (2, (long,))


def test_a_missing_column_is_named_with_those_that_are_there(put: Put) -> None:
    with pytest.raises(
        DataError, match=r"a.csv has no column 'text'; its first line names id, txt. Did you mean 'txt'\?"
    ):
        list(table(put("a.csv", "id,txt\n1,a\n"), ("text",), Counter(), "mine"))


def test_json_lines_that_are_none_are_named(put: Put) -> None:
    with pytest.raises(DataError, match=r"a.jsonl, line 3: this is no JSON"):
        list(records(put("a.jsonl", '{"a": 1}\n\n{oops}\n')))
    with pytest.raises(DataError, match=r"b.jsonl, line 1: expected a JSON object, found list"):
        list(records(put("b.jsonl", "[1]\n")))


@pytest.mark.parametrize(
    ("name", "part", "rest"),
    [
        ("train.txt", "train", ""),
        ("TriviaQA-web-dev.jsonl.gz", "dev", "TriviaQA-web"),
        ("SQuAD.jsonl.gz", None, "SQuAD"),
        ("eng.testb", "test", "eng"),
        ("reddit_0_test.json", "test", "reddit_0"),
        ("contest.txt", None, "contest"),
    ],
)
def test_a_name_tells_its_part(name: str, part: str | None, rest: str) -> None:
    assert part_of(Path(name)) == (part, rest)


def test_sub_corpora_are_found_however_they_are_laid_out(put: Put, tmp_path: Path) -> None:
    for name in (
        "all/train/a.txt",
        "all/test/a.txt",
        "all/b/b.train.txt",
        "all/b/test.txt",
        "all/c.txt",
        "README.txt",
        "Makefile",
    ):
        put(name, "")
    assert {key: set(parts) for key, parts in sub_corpora(tmp_path, (".txt", "")).items()} == {
        "a": {"train", "test"},
        "b": {"train", "test"},
        "c": {None},
    }


def test_what_belongs_together_stays_in_one_part() -> None:
    groups = [i // 5 for i in range(100)]
    corpus = split_by("made", "lm", {"text": [str(i) for i in range(100)]}, groups)
    sides = [
        {int(text) // 5 for text in part}
        for part in (corpus.column("text")[: corpus.train], corpus.column("text")[corpus.train :])
    ]
    assert not sides[0] & sides[1]
    assert len(corpus) - corpus.train == 20
    again = split_by("made", "lm", {"text": [str(i) for i in range(100)]}, groups)
    assert again.key == corpus.key


def test_a_single_group_is_all_for_training() -> None:
    assert split_by("made", "lm", {"text": ["a", "b"]}, [1, 1]).train == 2


def test_a_part_without_rows_is_refused() -> None:
    with pytest.raises(DataError, match="made: no test rows were found in some"):
        whole("made", "lm", {"text": ["a"]}, {"text": []}, "some.txt")
    with pytest.raises(DataError, match="made: no rows were found"):
        split_by("made", "lm", {"text": []}, [])


def test_files_are_stacked_by_the_columns_they_share() -> None:
    assert stacked([{"a": [1], "b": [2]}, {"a": [3]}, {"a": [], "c": []}]) == {"a": [1, 3]}
    assert stacked([]) == {}


def test_what_was_left_out_is_told() -> None:
    assert (
        told([Path("x/a.csv"), "b"], {"neutral tweets": 1200, "broken": 0})
        == "a.csv, b; left out: 1,200 neutral tweets"
    )
    assert told(["b"]) == "b"
