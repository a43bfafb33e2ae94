from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.lm_corpora import reddit, shakespeare, stackoverflow

Put = Callable[..., Path]


def test_a_role_is_a_client_however_it_is_written(put: Put, tmp_path: Path) -> None:
    speech = "First Citizen:\nBefore we proceed: hear me\nspeak.\n\nAll:\nSpeak, speak.\n\nTITUS:\n\nALL:\nResolved.\n\nExeunt\n"
    put("input.txt", speech.replace("\n", "\r\n"))
    corpus = shakespeare(tmp_path)
    pairs = set(zip(corpus.column("client"), corpus.column("text"), strict=True))
    assert pairs == {
        ("First Citizen", "Before we proceed: hear me\nspeak."),
        ("All", "Speak, speak."),
        ("All", "Resolved."),
    }
    assert corpus.source == "input.txt; left out: 1 blocks without a role, 1 roles that say nothing"
    assert (corpus.num_train, len(corpus)) == (2, 3)


def leaf(**texts: list[object]) -> str:
    users = {user: {"x": x, "y": [0] * len(x)} for user, x in texts.items()}
    return json.dumps({"users": list(users), "num_samples": [len(x) for x in texts.values()], "user_data": users})


def test_the_chunks_of_leaf_are_texts_again(put: Put, tmp_path: Path) -> None:
    chunks = [[["<BOS>", "hello", "there"], ["friend", "<EOS>", "<PAD>"]], [["<PAD>"]]]
    put("train/reddit_0_train.json", leaf(ann=chunks, bob=["plain text", {"not": "a text"}]))
    put("train/reddit_1_train.json", leaf(cy=[["tokens", "only"]]))
    put("test/reddit_0_test.json", leaf(ann=["bye"]))
    corpus = reddit(tmp_path)
    assert corpus.column("text") == ["hello there friend", "plain text", "tokens only", "bye"]
    assert corpus.column("client") == ["ann", "bob", "cy", "ann"]
    assert corpus.num_train == 3
    assert "2 texts that are empty or deleted" in corpus.source


@pytest.mark.parametrize(
    ("text", "says"),
    [("[]", "a.json: there is no 'user_data'"), ('{"user_data": {"ann": []}}', "a.json: user 'ann' has no list 'x'")],
)
def test_json_of_another_form_is_explained(text: str, says: str, put: Put, tmp_path: Path) -> None:
    put("a.json", text)
    with pytest.raises(DataError, match=says):
        reddit(tmp_path)


def test_deleted_comments_are_left_out(put: Put, tmp_path: Path) -> None:
    put("comments.csv", 'author,score,body\nann,1,"one,\ntwo"\n[deleted],1,x\nbob,2,[removed]\ncy,3\ndi,1,four\n')
    corpus = reddit(tmp_path)
    assert set(zip(corpus.column("client"), corpus.column("text"), strict=True)) == {
        ("ann", "one,\ntwo"),
        ("di", "four"),
    }
    assert corpus.source == "comments.csv; left out: 1 rows with missing columns, 2 texts that are empty or deleted"


def test_posts_are_read_from_tables_and_records(put: Put, tmp_path: Path) -> None:
    put("csv/stackoverflow_train.csv", "user_id,tokens\n7,how do i\n8,it works\n")
    put("csv/stackoverflow_test.csv", "user_id,tokens\n7,thanks\n")
    rows = [{"user_id": 7, "tokens": ["how", "do", "i"]}, {"user_id": 8, "text": "it works"}, {"text": "nobody's"}]
    put("jsonl/train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    put("jsonl/valid.jsonl", '{"user_id": "7", "text": "thanks"}\n')
    for form in ("csv", "jsonl"):
        corpus = stackoverflow(tmp_path / form)
        assert corpus.column("text") == ["how do i", "it works", "thanks"]
        assert corpus.column("client") == ["7", "8", "7"]
        assert corpus.num_train == 2


def test_without_parts_a_share_of_the_posts_is_for_testing(put: Put, tmp_path: Path) -> None:
    put("posts.csv", "user_id,text\n" + "".join(f"{i},post {i}\n" for i in range(10)))
    corpus = stackoverflow(tmp_path)
    assert (corpus.num_train, len(corpus)) == (8, 10)


def test_a_table_of_posts_without_a_user_is_refused(put: Put, tmp_path: Path) -> None:
    put("posts.csv", "user,text\n1,x\n")
    with pytest.raises(
        DataError, match=r"posts.csv has no column 'user_id'; its first line names user, text. Did you mean 'user'\?"
    ):
        stackoverflow(tmp_path)
