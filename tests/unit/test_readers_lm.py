"""The readers of corpora for language modeling, on small files made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.lm_corpora import reddit, shakespeare, stackoverflow

WriteFile = Callable[..., Path]


def test_shakespeare_roles_are_clients_regardless_of_case(write_file: WriteFile, tmp_path: Path) -> None:
    blocks = ["First Citizen:\nBefore we proceed: hear me\nspeak.", "All:\nSpeak, speak.", "TITUS:", "ALL:\nResolved."]
    write_file("input.txt", "\n\n".join([*blocks, "Exeunt\n"]).replace("\n", "\r\n"))
    corpus = shakespeare(tmp_path)
    pairs = set(zip(corpus.column("client"), corpus.column("text"), strict=True))
    assert pairs == {
        ("First Citizen", "Before we proceed: hear me\nspeak."),
        ("All", "Speak, speak."),
        ("All", "Resolved."),
    }
    assert corpus.report.drop_counts == {"blocks without a role": 1, "roles without a speech": 1}
    assert (corpus.num_train, len(corpus)) == (2, 3)


def leaf(**texts: list[object]) -> str:
    users = {user: {"x": x, "y": [0] * len(x)} for user, x in texts.items()}
    return json.dumps({"users": list(users), "num_samples": [len(x) for x in texts.values()], "user_data": users})


def test_reddit_joins_the_token_chunks_of_leaf(write_file: WriteFile, tmp_path: Path) -> None:
    chunks = [[["<BOS>", "hello", "there"], ["friend", "<EOS>", "<PAD>"]], [["<PAD>"]]]
    write_file("train/reddit_0_train.json", leaf(ann=chunks, bob=["plain text", {"not": "a text"}]))
    write_file("train/reddit_1_train.json", leaf(cy=[["tokens", "only"]]))
    write_file("test/reddit_0_test.json", leaf(ann=["bye"]))
    corpus = reddit(tmp_path)
    assert corpus.column("text") == ["hello there friend", "plain text", "tokens only", "bye"]
    assert corpus.column("client") == ["ann", "bob", "cy", "ann"]
    assert corpus.num_train == 3
    assert corpus.report.drop_counts == {"texts that are empty or deleted": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [("[]", "a.json: there is no 'user_data'"), ('{"user_data": {"ann": []}}', "a.json: user 'ann' has no list 'x'")],
)
def test_json_in_another_format_raises_an_error(text: str, message: str, write_file: WriteFile, tmp_path: Path) -> None:
    write_file("a.json", text)
    with pytest.raises(DataError, match=message):
        reddit(tmp_path)


def test_reddit_skips_deleted_comments(write_file: WriteFile, tmp_path: Path) -> None:
    write_file(
        "comments.csv", 'author,score,body\nann,1,"one,\ntwo"\n[deleted],1,x\nbob,2,[removed]\ncy,3\ndi,1,four\n'
    )
    corpus = reddit(tmp_path)
    assert set(zip(corpus.column("client"), corpus.column("text"), strict=True)) == {
        ("ann", "one,\ntwo"),
        ("di", "four"),
    }
    assert corpus.report.drop_counts == {"rows with missing columns": 1, "texts that are empty or deleted": 2}
    assert corpus.report.num_rows == 5


def test_stackoverflow_reads_csv_and_jsonl(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("csv/stackoverflow_train.csv", "user_id,tokens\n7,how do i\n8,it works\n")
    write_file("csv/stackoverflow_test.csv", "user_id,tokens\n7,thanks\n")
    rows = [{"user_id": 7, "tokens": ["how", "do", "i"]}, {"user_id": 8, "text": "it works"}, {"text": "no author"}]
    write_file("jsonl/train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    write_file("jsonl/valid.jsonl", '{"user_id": "7", "text": "thanks"}\n')
    for file_format in ("csv", "jsonl"):
        corpus = stackoverflow(tmp_path / file_format)
        assert corpus.column("text") == ["how do i", "it works", "thanks"]
        assert corpus.column("client") == ["7", "8", "7"]
        assert corpus.num_train == 2


def test_without_splits_a_share_of_the_posts_is_held_out(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("posts.csv", "user_id,text\n" + "".join(f"{i},post {i}\n" for i in range(10)))
    corpus = stackoverflow(tmp_path)
    assert (corpus.num_train, len(corpus)) == (8, 10)


def test_missing_user_column_raises_an_error(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("posts.csv", "user,text\n1,x\n")
    with pytest.raises(
        DataError, match=r"posts.csv has no column 'user_id'; its header names user, text. Did you mean 'user'\?"
    ):
        stackoverflow(tmp_path)
