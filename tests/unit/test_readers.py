"""What holds for every reader, and for the files and parts they stand on."""

from __future__ import annotations

import bz2
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.corpus_readers import CORPUS_READERS
from motet.datasets.original_files import (
    find_file,
    parse_csv_line,
    read_columns,
    read_jsonl,
    read_lines,
    read_text,
    require_file,
)
from motet.datasets.splits import (
    build_corpus,
    concatenate,
    describe_source,
    find_subcorpora,
    parse_split_name,
    split_by_group,
)

Put = Callable[..., Path]
EVERY = pytest.mark.parametrize("name", CORPUS_READERS)


@EVERY
def test_an_empty_folder_is_refused_with_what_was_expected(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        CORPUS_READERS[name](tmp_path)
    said = str(refused.value)
    assert said.startswith(f"{name}: there ")
    assert str(tmp_path) in said
    assert "; " in said


@EVERY
def test_a_folder_that_is_not_there_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=rf"{name}: '.*nowhere' does not exist; give the folder that holds the original files"
    ):
        CORPUS_READERS[name](tmp_path / "nowhere")


def test_a_file_in_place_of_a_folder_is_refused(put: Put) -> None:
    with pytest.raises(DataError, match="is a file; give the folder"):
        CORPUS_READERS["20news"](put("20news-bydate.tar.gz", ""))


@EVERY
def test_a_reader_says_what_it_reads_in_one_sentence(name: str) -> None:
    doc = CORPUS_READERS[name].__doc__ or ""
    assert doc.endswith(".")
    assert "\n" not in doc
    assert 40 < len(doc) < 122


def test_a_file_is_found_below_the_folder_and_packed(tmp_path: Path) -> None:
    inner = tmp_path / "unpacked" / "here"
    inner.mkdir(parents=True)
    (inner / "words.txt.bz2").write_bytes(bz2.compress("größer\n".encode()))
    path = find_file(tmp_path, "words.txt")
    assert path is not None
    assert read_text(path) == "größer\n"


def test_what_archivers_leave_behind_is_not_found(put: Put, tmp_path: Path) -> None:
    put("__MACOSX/train.csv", "rubbish")
    put(".git/train.csv", "rubbish")
    assert find_file(tmp_path, "train.csv") is None
    with pytest.raises(DataError, match=r"x: there is no file 'train.csv' \(nor dev.csv\) in .*; put it there"):
        require_file("x", tmp_path, "train.csv", "dev.csv", hint="put it there")


def test_a_damaged_archive_is_an_error_one_can_mend(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(b"no gzip at all")
    with pytest.raises(DataError, match=r"a.txt.gz: the file cannot be read .* fetch it again"):
        read_text(tmp_path / "a.txt.gz")


def test_a_stray_latin_1_byte_harms_no_other_letter(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("naïve ".encode() + b"\xa315m")
    assert read_text(tmp_path / "a.txt") == "naïve £15m"


def test_a_byte_order_mark_and_windows_line_ends_vanish(put: Put) -> None:
    path = put("a.txt", "\ufeffone\r\ntwo\u2028still two\r\n")
    assert list(read_lines(path)) == [(1, "one"), (2, "two\u2028still two")]


def test_an_unbalanced_quote_harms_only_its_line() -> None:
    assert parse_csv_line('1,"open,two') == ["1", "open,two"]
    assert parse_csv_line("a\rb,c") == ["a b", "c"]
    assert parse_csv_line("") == []


def test_a_quote_between_tabs_is_a_letter(put: Put) -> None:
    path = put("a.tsv", '\ufeffid\ttext\r\n1\t"open\r\n\r\n2\r\n3\ta\rb\r\n')
    left_out: Counter[str] = Counter()
    assert list(read_columns(path, ("text",), left_out, "mine", tabs=True)) == [(2, ('"open',)), (5, ("a\rb",))]
    assert left_out == {"rows with missing columns": 1}


def test_rows_with_missing_columns_are_counted(put: Put) -> None:
    left_out: Counter[str] = Counter()
    path = put("a.csv", 'id,text\n1,"one\ntwo"\n2\n\n3,three\n')
    assert [values for _, values in read_columns(path, ("text", "id"), left_out, "mine")] == [
        ("one\ntwo", "1"),
        ("three", "3"),
    ]
    assert left_out == {"rows with missing columns": 1}


def test_a_field_longer_than_csv_allows_is_read(put: Put) -> None:
    long = "x" * 200_000
    assert next(read_columns(put("a.csv", f"text\n{long}\n"), ("text",), Counter(), "mine")) == (2, (long,))


def test_a_missing_column_is_named_with_those_that_are_there(put: Put) -> None:
    with pytest.raises(
        DataError, match=r"a.csv has no column 'text'; its first line names id, txt. Did you mean 'txt'\?"
    ):
        list(read_columns(put("a.csv", "id,txt\n1,a\n"), ("text",), Counter(), "mine"))


def test_json_lines_that_are_none_are_named(put: Put) -> None:
    with pytest.raises(DataError, match=r"a.jsonl, line 3: this is no JSON"):
        list(read_jsonl(put("a.jsonl", '{"a": 1}\n\n{oops}\n')))
    with pytest.raises(DataError, match=r"b.jsonl, line 1: expected a JSON object, found list"):
        list(read_jsonl(put("b.jsonl", "[1]\n")))


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
    assert parse_split_name(Path(name)) == (part, rest)


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
    assert {key: set(parts) for key, parts in find_subcorpora(tmp_path, (".txt", "")).items()} == {
        "a": {"train", "test"},
        "b": {"train", "test"},
        "c": {None},
    }


def test_what_belongs_together_stays_in_one_part() -> None:
    groups = [i // 5 for i in range(100)]
    corpus = split_by_group("made", "lm", {"text": [str(i) for i in range(100)]}, groups)
    sides = [
        {int(text) // 5 for text in part}
        for part in (corpus.column("text")[: corpus.num_train], corpus.column("text")[corpus.num_train :])
    ]
    assert not sides[0] & sides[1]
    assert len(corpus) - corpus.num_train == 20
    again = split_by_group("made", "lm", {"text": [str(i) for i in range(100)]}, groups)
    assert again.fingerprint == corpus.fingerprint


def test_a_single_group_is_all_for_training() -> None:
    assert split_by_group("made", "lm", {"text": ["a", "b"]}, [1, 1]).num_train == 2


def test_a_part_without_rows_is_refused() -> None:
    with pytest.raises(DataError, match="made: no test rows were found in some"):
        build_corpus("made", "lm", {"text": ["a"]}, {"text": []}, "some.txt")
    with pytest.raises(DataError, match="made: no rows were found"):
        split_by_group("made", "lm", {"text": []}, [])


def test_files_are_stacked_by_the_columns_they_share() -> None:
    assert concatenate([{"a": [1], "b": [2]}, {"a": [3]}, {"a": [], "c": []}]) == {"a": [1, 3]}
    assert concatenate([]) == {}


def test_what_was_left_out_is_told() -> None:
    assert (
        describe_source([Path("x/a.csv"), "b"], {"neutral tweets": 1200, "broken": 0})
        == "a.csv, b; left out: 1,200 neutral tweets"
    )
    assert describe_source(["b"]) == "b"
