from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.seq2seq_corpora import aeslc, bbc, cnn_dm, cornell, gigaword, msqg, squad_qg

Put = Callable[..., Path]


def test_an_article_of_gigaword_stands_beside_its_title(put: Put, tmp_path: Path) -> None:
    put("sumdata/train/train.article.txt", "first article .\n\nthird\u2028article .\n")
    put("sumdata/train/train.title.txt", "first\nsecond\nthird\n")
    put("sumdata/train/valid.article.filter.txt", "valid article\n")
    put("sumdata/train/valid.title.filter.txt", "valid\n")
    corpus = gigaword(tmp_path)
    assert corpus.column("source") == ["first article .", "third\u2028article .", "valid article"]
    assert corpus.column("target") == ["first", "third", "valid"]
    assert "left out: 1 rows with an empty side" in corpus.source
    put("sumdata/Giga/input.txt", "test article\n")
    put("sumdata/Giga/task1_ref0.txt", "test\n")
    assert gigaword(tmp_path).column("target")[-1] == "test"


def test_files_of_different_length_are_refused(put: Put, tmp_path: Path) -> None:
    put("train.article.txt", "a\nb\n")
    put("train.title.txt", "a\n")
    with pytest.raises(
        DataError, match=r"gigaword: train.article.txt has 2 lines and train.title.txt 1; .* Fetch both again"
    ):
        gigaword(tmp_path)


def test_a_source_without_its_target_is_not_enough(put: Put, tmp_path: Path) -> None:
    put("train.article.txt", "a\n")
    with pytest.raises(
        DataError, match=r"gigaword: there is no file 'train.article.txt' with its 'train.title.txt' in"
    ):
        gigaword(tmp_path)


def test_msqg_is_tested_on_dev_since_its_test_questions_are_secret(put: Put, tmp_path: Path) -> None:
    for part in ("train", "dev", "test"):
        put(f"easy/msqg_data/org_data/{part}.src", f"span [SEP] {part}\n")
        put(f"easy/cnndm_data/org_data/{part}.src", "another corpus\n")
    for part in ("train", "dev"):
        put(f"easy/msqg_data/org_data/{part}.tgt", f"what {part}\n")
    corpus = msqg(tmp_path)
    assert corpus.column("source") == ["span [SEP] train", "span [SEP] dev"]
    assert corpus.column("target") == ["what train", "what dev"]


def test_questions_on_squad_are_trained_on_dev_without_a_train(put: Put, tmp_path: Path) -> None:
    for part in ("dev", "test"):
        put(f"src-{part}.txt", f"sentence {part} . \n")
        put(f"tgt-{part}.txt", f"question {part} ?\n")
    assert squad_qg(tmp_path).column("target") == ["question dev ?", "question test ?"]
    put("src-train.txt", "sentence train\n")
    put("tgt-train.txt", "question train\n")
    assert squad_qg(tmp_path).column("source") == ["sentence train", "sentence test ."]


STORY = "(CNN) -- First.\n\nSecond line.\n\n@highlight\n\nOne thing\n\n@highlight\n\nAnother thing\n"


def test_highlights_of_a_story_are_its_summary(put: Put, tmp_path: Path) -> None:
    for i in range(5):
        put(f"cnn/stories/c{i}.story", STORY)
        put(
            f"dailymail_stories/d{i}.story",
            "@highlight\n\nno article\n" if i == 0 else f"Mail.\r\n\r\n@highlight\r\n\r\nDone {i}\r\n",
        )
    corpus = cnn_dm(tmp_path)
    assert set(zip(corpus.column("source"), corpus.column("target"), corpus.column("domain"), strict=True)) == {
        ("(CNN) -- First. Second line.", "One thing\nAnother thing", "cnn"),
        *(("Mail.", f"Done {i}", "dailymail") for i in range(1, 5)),
    }
    assert (corpus.num_train, len(corpus)) == (7, 9)
    assert corpus.source == "stories; left out: 1 rows with an empty side"


def test_lists_of_addresses_say_which_story_is_for_what(put: Put, tmp_path: Path) -> None:
    for url in ("http://a", "http://b", "http://c"):
        put(f"cnn/stories/{hashlib.sha1(url.encode()).hexdigest()}.story", f"{url}\n\n@highlight\n\nx\n")
    put("all_train.txt", "http://a\nhttp://missing\n")
    put("all_test.txt", "http://c\n")
    corpus = cnn_dm(tmp_path)
    assert corpus.column("source") == ["http://a", "http://c"]
    assert corpus.num_train == 1


def test_news_are_read_from_tables_too(put: Put, tmp_path: Path) -> None:
    put("csv/train.csv", 'id,article,highlights\n1,"a, b\nc","x\ny"\n2,only\n')
    put("csv/test.csv", "id,article,highlights\n1,d,z\n")
    put("jsonl/train.jsonl", json.dumps({"article": "a, b\nc", "highlights": ["x", "y"]}) + "\n")
    put("jsonl/validation.jsonl", json.dumps({"article": "d", "highlights": "z"}) + "\n")
    for form in ("csv", "jsonl"):
        corpus = cnn_dm(tmp_path / form)
        assert corpus.column("source") == ["a, b c", "d"]
        assert corpus.column("target") == ["x\ny", "z"]
    put("jsonl/train.jsonl", '{"text": "a"}\n')
    with pytest.raises(DataError, match=r"train.jsonl, line 1: there is no article with highlights; it has text"):
        cnn_dm(tmp_path / "jsonl")


def said(*parts: str) -> str:
    return " +++$+++ ".join(parts) + "\n"


def test_a_reply_follows_the_line_before_it(put: Put, tmp_path: Path) -> None:
    spoken = ["Can we make this quick?", "Well, caf\xe9 \u2026", "Not the hacking.", "", "Okay."]
    put(
        "movie_lines.txt",
        "".join(said(f"L{i}", "u0", "m0", "BIANCA", text) for i, text in enumerate(spoken)) + "L9 broken\n",
        "cp1252",
    )
    talks = (
        said("u0", "u2", "m0", "['L0', 'L1', 'L2']")
        + said("u0", "u2", "m7", "['L2', 'L4']")
        + said("u0", "u2", "m0", "['L2', 'L3']")
    )
    put("movie_conversations.txt", talks + "\n" + said("u0", "u2", "m0", "['L4', 'L77']"), "latin-1")
    corpus = cornell(tmp_path)
    pairs = set(zip(corpus.column("source"), corpus.column("target"), corpus.column("client"), strict=True))
    assert pairs == {
        ("Can we make this quick?", "Well, caf\xe9 \u2026", "m0"),
        ("Well, caf\xe9 \u2026", "Not the hacking.", "m0"),
        ("Not the hacking.", "Okay.", "m7"),
    }
    assert "left out: 2 rows with an empty side, 1 rows with missing columns" in corpus.source


def test_a_conversation_stays_in_one_part(put: Put, tmp_path: Path) -> None:
    put("movie_lines.txt", "".join(said(f"L{i}", "u0", "m0", "B", f"line {i}") for i in range(60)))
    put(
        "movie_conversations.txt",
        "".join(said("u0", "u1", "m0", str([f"L{i}", f"L{i + 1}", f"L{i + 2}"])) for i in range(0, 60, 3)),
    )
    corpus = cornell(tmp_path)
    talks = [int(text.split()[1]) // 3 for text in corpus.column("source")]
    assert not set(talks[: corpus.num_train]) & set(talks[corpus.num_train :])
    assert (corpus.num_train, len(corpus)) == (32, 40)


def test_an_e_mail_has_a_subject_and_a_mailbox(put: Put, tmp_path: Path) -> None:
    put("enron_subject_line/train/allen-p_inbox_20.subject", "Greg,\nattached is it.\n\n@subject\nService Agreement")
    put("enron_subject_line/train/allen-p_inbox_21.subject", "no subject here")
    put("enron_subject_line/dev/allen-p_inbox_22.subject", "dev\n@subject\ndev")
    put("enron_subject_line/test/badeer-r_sent_1.subject", "Hi\r\n\r\n@subject\r\nMeeting\r\n\r\n@ann0\r\nother\r\n")
    corpus = aeslc(tmp_path)
    assert corpus.column("source") == ["Greg, attached is it.", "Hi"]
    assert corpus.column("target") == ["Service Agreement", "Meeting"]
    assert corpus.column("client") == ["allen-p", "badeer-r"]
    assert corpus.source == "enron_subject_line; left out: 1 rows with an empty side"


def test_an_article_that_is_there_twice_is_in_one_part(put: Put, tmp_path: Path) -> None:
    for topic, shift in (("tech", 0), ("sport", 5)):
        for i in range(10):
            put(f"News Articles/{topic}/{i:03d}.txt", f"Title {i + shift}\n\nBody costs £{i + shift}.", "latin-1")
            put(f"Summaries/{topic}/{i:03d}.txt", f"Body {i + shift}.")
    put("News Articles/tech/010.txt", "alone")
    corpus = bbc(tmp_path)
    assert (corpus.num_train, len(corpus)) == (16, 20)
    assert not set(corpus.column("source")[: corpus.num_train]) & set(corpus.column("source")[corpus.num_train :])
    at = corpus.column("source").index("Title 0 Body costs £0.")
    assert (corpus.column("target")[at], corpus.column("domain")[at]) == ("Body 0.", "tech")
    assert "1 articles without a summary" in corpus.source
