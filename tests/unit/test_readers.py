"""Properties of all corpus readers, and the helpers that they share."""

from __future__ import annotations

import bz2
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.corpus_readers import CORPUS_READERS
from motet.datasets.original_files import (
    find_file,
    parse_csv_line,
    read_columns,
    read_json,
    read_jsonl,
    require_file,
    walk_folders,
)
from motet.datasets.read_log import ReadLog
from motet.datasets.splits import (
    build_corpus,
    concatenate,
    find_subcorpora,
    parse_split_name,
    split_by_group,
)
from motet.datasets.text_files import read_lines, read_text

WriteFile = Callable[..., Path]
LOG = ReadLog(Path())
all_readers = pytest.mark.parametrize("name", CORPUS_READERS)


@all_readers
def test_empty_folder_raises_an_error_that_says_what_was_expected(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        CORPUS_READERS[name](tmp_path)
    message = str(error.value)
    assert message.startswith(f"{name}: there ")
    assert str(tmp_path) in message
    assert "; " in message


@all_readers
def test_missing_folder_raises_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=rf"{name}: '.*nowhere' does not exist: .*\. Give the folder that holds the original files"
    ):
        CORPUS_READERS[name](tmp_path / "nowhere")


def test_file_instead_of_a_folder_raises_an_error(write_file: WriteFile) -> None:
    with pytest.raises(DataError, match=r"is a file\. Give the folder"):
        CORPUS_READERS["20news"](write_file("20news-bydate.tar.gz", ""))


@all_readers
def test_reader_has_a_docstring_of_one_line(name: str) -> None:
    doc = CORPUS_READERS[name].__doc__ or ""
    assert doc.endswith(".")
    assert "\n" not in doc
    assert 40 < len(doc) < 113


def test_find_file_searches_subfolders_and_compressed_files(tmp_path: Path) -> None:
    inner = tmp_path / "unpacked" / "here"
    inner.mkdir(parents=True)
    (inner / "words.txt.bz2").write_bytes(bz2.compress("größer\n".encode()))
    path = find_file(tmp_path, "words.txt")
    assert path is not None
    assert read_text(path, LOG) == "größer\n"


def test_find_file_ignores_hidden_and_archive_folders(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("__MACOSX/train.csv", "ignored")
    write_file(".git/train.csv", "ignored")
    assert find_file(tmp_path, "train.csv") is None
    with pytest.raises(DataError, match=r"x: there is no file 'train.csv' \(nor dev.csv\) in .*; put it there"):
        require_file("x", tmp_path, "train.csv", "dev.csv", hint="put it there")


@pytest.mark.parametrize(
    ("name", "train", "test", "text"),
    [
        ("agnews", "train.csv", "test.csv", "1,a,b\n"),
        ("policyqa", "train.json", "test.json", '{"data": []}'),
        ("imdb", "train/neg/1.txt", "test/neg/1.txt", "bad"),
        ("cornell", "movie_lines.txt", "movie_conversations.txt", ""),
        ("20news", "20news-bydate-train/sci.med/1", "20news-bydate-test/sci.med/1", "text"),
    ],
)
def test_training_and_test_files_must_be_in_one_folder(
    name: str, train: str, test: str, text: str, write_file: WriteFile, tmp_path: Path
) -> None:
    write_file(f"a/{train}", text)
    write_file(f"b/{test}", text)
    with pytest.raises(DataError, match=rf"{name}: there is no (file|folder) .*beside a/"):
        CORPUS_READERS[name](tmp_path)
    write_file(f"a/{test}", text)
    write_file(f"b/{train}", text)
    with pytest.raises(DataError, match=rf"{name}: the files are in several folders \(a, b\)"):
        CORPUS_READERS[name](tmp_path)


def test_damaged_archive_raises_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(b"no gzip at all")
    with pytest.raises(DataError, match=r"a.txt.gz: the file cannot be read .* download it again"):
        read_text(tmp_path / "a.txt.gz", LOG)


def test_stray_latin1_byte_leaves_the_rest_of_the_file_as_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("naïve ".encode() + b"\xa315m")
    assert read_text(tmp_path / "a.txt", LOG) == "naïve £15m"


def test_read_lines_removes_byte_order_mark_and_windows_line_ends(write_file: WriteFile) -> None:
    path = write_file("a.txt", "\ufeffone\r\ntwo\u2028still two\r\n")
    assert list(read_lines(path, LOG)) == [(1, "one"), (2, "two\u2028still two")]


def test_parse_csv_line_tolerates_unbalanced_quotes() -> None:
    assert parse_csv_line('1,"open,two') == ["1", "open,two"]
    assert parse_csv_line("a\rb,c") == ["a b", "c"]
    assert parse_csv_line("") == []


def test_quotes_have_no_meaning_in_a_tsv_file(write_file: WriteFile, tmp_path: Path) -> None:
    path = write_file("a.tsv", '\ufeffid\ttext\r\n1\t"open\r\n\r\n2\r\n3\ta\rb\r\n')
    log = ReadLog(tmp_path)
    assert list(read_columns(path, ("text",), log, "corpus", tabs=True)) == [(2, ('"open',)), (5, ("a\rb",))]
    assert log.build_report(0).drop_counts == {"rows with missing columns": 1}


def test_rows_with_missing_columns_are_counted(write_file: WriteFile, tmp_path: Path) -> None:
    log = ReadLog(tmp_path)
    path = write_file("a.csv", 'id,text\n1,"one\ntwo"\n2\n\n3,three\n')
    assert [values for _, values in read_columns(path, ("text", "id"), log, "corpus")] == [
        ("one\ntwo", "1"),
        ("three", "3"),
    ]
    assert log.build_report(0).drop_counts == {"rows with missing columns": 1}


def test_fields_longer_than_the_csv_default_limit_are_read(write_file: WriteFile) -> None:
    long = "x" * 200_000
    assert next(read_columns(write_file("a.csv", f"text\n{long}\n"), ("text",), ReadLog(Path()), "corpus")) == (
        2,
        (long,),
    )


def test_missing_column_raises_an_error_that_names_the_header(write_file: WriteFile) -> None:
    with pytest.raises(DataError, match=r"a.csv has no column 'text'; its header names id, txt. Did you mean 'txt'\?"):
        list(read_columns(write_file("a.csv", "id,txt\n1,a\n"), ("text",), ReadLog(Path()), "corpus"))


def test_invalid_json_lines_raise_an_error_with_the_line_number(write_file: WriteFile) -> None:
    with pytest.raises(DataError, match=r"a.jsonl, line 3: invalid JSON"):
        list(read_jsonl(write_file("a.jsonl", '{"a": 1}\n\n{oops}\n'), LOG))
    with pytest.raises(DataError, match=r"b.jsonl, line 1: expected a JSON object, found list"):
        list(read_jsonl(write_file("b.jsonl", "[1]\n"), LOG))
    with pytest.raises(DataError, match=r"c\.jsonl, line 1: \\ud800 is half of a surrogate pair"):
        list(read_jsonl(write_file("c.jsonl", '{"a": "\\ud800"}\n'), LOG))
    with pytest.raises(DataError, match=r"d\.json: invalid JSON"):
        read_json(write_file("d.json", "[" * 100_000), LOG)


@pytest.mark.parametrize(
    ("name", "split", "rest"),
    [
        ("train.txt", "train", ""),
        ("TriviaQA-web-dev.jsonl.gz", "dev", "TriviaQA-web"),
        ("SQuAD.jsonl.gz", None, "SQuAD"),
        ("eng.testb", "test", "eng"),
        ("reddit_0_test.json", "test", "reddit_0"),
        ("contest.txt", None, "contest"),
    ],
)
def test_split_is_parsed_from_a_file_name(name: str, split: str | None, rest: str) -> None:
    assert parse_split_name(Path(name)) == (split, rest)


def test_subcorpora_are_found_in_folders_and_file_names(write_file: WriteFile, tmp_path: Path) -> None:
    for name in (
        "all/train/a.txt",
        "all/test/a.txt",
        "all/b/b.train.txt",
        "all/b/test.txt",
        "all/c.txt",
        "README.txt",
        "Makefile",
    ):
        write_file(name, "")
    assert {key: set(parts) for key, parts in find_subcorpora(tmp_path, (".txt", "")).items()} == {
        "a": {"train", "test"},
        "b": {"train", "test"},
        "c": {None},
    }


def test_split_by_group_keeps_groups_together_and_is_deterministic() -> None:
    groups = [i // 5 for i in range(100)]
    corpus = split_by_group("corpus", "lm", {"text": [str(i) for i in range(100)]}, groups, LOG)
    train, test = [
        {int(text) // 5 for text in part}
        for part in (corpus.column("text")[: corpus.num_train], corpus.column("text")[corpus.num_train :])
    ]
    assert not train & test
    assert len(corpus) - corpus.num_train == 20
    second = split_by_group("corpus", "lm", {"text": [str(i) for i in range(100)]}, groups, LOG)
    assert second.fingerprint == corpus.fingerprint


def test_single_group_is_used_for_training() -> None:
    assert split_by_group("corpus", "lm", {"text": ["a", "b"]}, [1, 1], LOG).num_train == 2


def test_empty_split_raises_an_error() -> None:
    with pytest.raises(DataError, match="corpus: no test rows found in some"):
        build_corpus("corpus", "lm", {"text": ["a"]}, {"text": []}, ReadLog(Path("some.txt")))
    with pytest.raises(DataError, match="corpus: no rows found"):
        split_by_group("corpus", "lm", {"text": []}, [], LOG)


def test_concatenate_keeps_shared_columns() -> None:
    assert concatenate([{"a": [1], "b": [2]}, {"a": [3]}, {"a": [], "c": []}]) == {"a": [1, 3]}
    assert concatenate([]) == {}


def test_folders_are_searched_in_order_and_behind_links(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden", "__MACOSX"):
        (tmp_path / "corpus" / name).mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "corpus/c").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "corpus/loop").symlink_to(tmp_path / "corpus/loop")
    (tmp_path / "corpus/file").touch()
    assert [folder.name for folder in walk_folders(tmp_path / "corpus")] == ["corpus", "a", "b", "c"]


def test_the_digest_is_that_of_the_file_also_if_it_is_compressed(tmp_path: Path) -> None:
    for name, data in (("a.txt", b"one\ntwo\n"), ("b.txt.bz2", bz2.compress(b"one\ntwo\n"))):
        (tmp_path / name).write_bytes(data)
        log = ReadLog(tmp_path)
        assert read_text(tmp_path / name, log) == "one\ntwo\n"
        (file,) = log.build_report(num_rows=1).files
        assert (file.size, file.digest) == (len(data), hashlib.sha256(data).hexdigest())
