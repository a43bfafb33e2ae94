"""The readers of corpora for sequence to sequence, on small files made by hand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.seq2seq_corpora import aeslc, bbc, cnn_dm, cornell, gigaword, msqg, squad_qg

WriteFile = Callable[..., Path]


def test_gigaword_pairs_articles_with_titles(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("sumdata/train/train.article.txt", "first article .\n\nthird\u2028article .\n")
    write_file("sumdata/train/train.title.txt", "first\nsecond\nthird\n")
    write_file("sumdata/train/valid.article.filter.txt", "valid article\n")
    write_file("sumdata/train/valid.title.filter.txt", "valid\n")
    corpus = gigaword(tmp_path)
    assert corpus.column("source") == ["first article .", "third\u2028article .", "valid article"]
    assert corpus.column("target") == ["first", "third", "valid"]
    assert corpus.report.drop_counts == {"rows with an empty source or target": 1}
    write_file("sumdata/Giga/input.txt", "test article\n")
    write_file("sumdata/Giga/task1_ref0.txt", "test\n")
    assert gigaword(tmp_path).column("target")[-1] == "test"


def test_parallel_files_of_different_length_raise_an_error(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("train.article.txt", "a\nb\n")
    write_file("train.title.txt", "a\n")
    with pytest.raises(
        DataError, match=r"gigaword: train.article.txt has 2 lines and train.title.txt has 1; .* Download both again"
    ):
        gigaword(tmp_path)


def test_source_file_without_target_file_raises_an_error(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("train.article.txt", "a\n")
    with pytest.raises(
        DataError, match=r"gigaword: there is no file 'train.article.txt' with its 'train.title.txt' in"
    ):
        gigaword(tmp_path)


def test_msqg_uses_dev_because_test_targets_are_not_public(write_file: WriteFile, tmp_path: Path) -> None:
    for part in ("train", "dev", "test"):
        write_file(f"easy/msqg_data/org_data/{part}.src", f"span [SEP] {part}\n")
        write_file(f"easy/cnndm_data/org_data/{part}.src", "another corpus\n")
    for part in ("train", "dev"):
        write_file(f"easy/msqg_data/org_data/{part}.tgt", f"what {part}\n")
    corpus = msqg(tmp_path)
    assert corpus.column("source") == ["span [SEP] train", "span [SEP] dev"]
    assert corpus.column("target") == ["what train", "what dev"]


def test_squad_qg_trains_on_dev_if_there_is_no_training_file(write_file: WriteFile, tmp_path: Path) -> None:
    for part in ("dev", "test"):
        write_file(f"src-{part}.txt", f"sentence {part} . \n")
        write_file(f"tgt-{part}.txt", f"question {part} ?\n")
    assert squad_qg(tmp_path).column("target") == ["question dev ?", "question test ?"]
    write_file("src-train.txt", "sentence train\n")
    write_file("tgt-train.txt", "question train\n")
    assert squad_qg(tmp_path).column("source") == ["sentence train", "sentence test ."]


STORY = "(CNN) -- First.\n\nSecond line.\n\n@highlight\n\nOne thing\n\n@highlight\n\nAnother thing\n"


def test_cnn_dm_highlights_are_the_summary(write_file: WriteFile, tmp_path: Path) -> None:
    for i in range(5):
        write_file(f"cnn/stories/c{i}.story", STORY)
        write_file(
            f"dailymail_stories/d{i}.story",
            "@highlight\n\nno article\n" if i == 0 else f"Mail.\r\n\r\n@highlight\r\n\r\nDone {i}\r\n",
        )
    corpus = cnn_dm(tmp_path)
    assert set(zip(corpus.column("source"), corpus.column("target"), corpus.column("domain"), strict=True)) == {
        ("(CNN) -- First. Second line.", "One thing\nAnother thing", "cnn"),
        *(("Mail.", f"Done {i}", "dailymail") for i in range(1, 5)),
    }
    assert (corpus.num_train, len(corpus)) == (7, 9)
    assert corpus.report.drop_counts == {"rows with an empty source or target": 1}


def test_cnn_dm_url_lists_define_the_splits(write_file: WriteFile, tmp_path: Path) -> None:
    for url in ("http://a", "http://b", "http://c"):
        write_file(f"cnn/stories/{hashlib.sha1(url.encode()).hexdigest()}.story", f"{url}\n\n@highlight\n\nx\n")
    write_file("all_train.txt", "http://a\nhttp://missing\n")
    write_file("all_test.txt", "http://c\n")
    corpus = cnn_dm(tmp_path)
    assert corpus.column("source") == ["http://a", "http://c"]
    assert corpus.num_train == 1


def test_cnn_dm_reads_csv_and_jsonl(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("csv/train.csv", 'id,article,highlights\n1,"a, b\nc","x\ny"\n2,only\n')
    write_file("csv/test.csv", "id,article,highlights\n1,d,z\n")
    write_file("jsonl/train.jsonl", json.dumps({"article": "a, b\nc", "highlights": ["x", "y"]}) + "\n")
    write_file("jsonl/validation.jsonl", json.dumps({"article": "d", "highlights": "z"}) + "\n")
    for file_format in ("csv", "jsonl"):
        corpus = cnn_dm(tmp_path / file_format)
        assert corpus.column("source") == ["a, b c", "d"]
        assert corpus.column("target") == ["x\ny", "z"]
    write_file("jsonl/train.jsonl", '{"text": "a"}\n')
    with pytest.raises(
        DataError, match=r"train.jsonl, line 1: expected an article and its highlights; the row has text"
    ):
        cnn_dm(tmp_path / "jsonl")


def cornell_line(*fields: str) -> str:
    return " +++$+++ ".join(fields) + "\n"


def test_cornell_pairs_each_line_with_its_reply(write_file: WriteFile, tmp_path: Path) -> None:
    texts = ["Can we make this quick?", "Well, caf\xe9 \u2026", "Not the hacking.", "", "Okay."]
    write_file(
        "movie_lines.txt",
        "".join(cornell_line(f"L{i}", "u0", "m0", "BIANCA", text) for i, text in enumerate(texts)) + "L9 broken\n",
        "cp1252",
    )
    conversations = (
        cornell_line("u0", "u2", "m0", "['L0', 'L1', 'L2']")
        + cornell_line("u0", "u2", "m7", "['L2', 'L4']")
        + cornell_line("u0", "u2", "m0", "['L2', 'L3']")
    )
    write_file(
        "movie_conversations.txt", conversations + "\n" + cornell_line("u0", "u2", "m0", "['L4', 'L77']"), "latin-1"
    )
    corpus = cornell(tmp_path)
    pairs = set(zip(corpus.column("source"), corpus.column("target"), corpus.column("client"), strict=True))
    assert pairs == {
        ("Can we make this quick?", "Well, caf\xe9 \u2026", "m0"),
        ("Well, caf\xe9 \u2026", "Not the hacking.", "m0"),
        ("Not the hacking.", "Okay.", "m7"),
    }
    assert corpus.report.drop_counts == {"rows with an empty source or target": 2, "rows with missing columns": 1}


def test_cornell_keeps_conversations_in_one_split(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("movie_lines.txt", "".join(cornell_line(f"L{i}", "u0", "m0", "B", f"line {i}") for i in range(60)))
    write_file(
        "movie_conversations.txt",
        "".join(cornell_line("u0", "u1", "m0", str([f"L{i}", f"L{i + 1}", f"L{i + 2}"])) for i in range(0, 60, 3)),
    )
    corpus = cornell(tmp_path)
    conversations = [int(text.split()[1]) // 3 for text in corpus.column("source")]
    assert not set(conversations[: corpus.num_train]) & set(conversations[corpus.num_train :])
    assert (corpus.num_train, len(corpus)) == (32, 40)


def test_aeslc_reads_subject_and_mailbox(write_file: WriteFile, tmp_path: Path) -> None:
    write_file(
        "enron_subject_line/train/allen-p_inbox_20.subject", "Greg,\nattached is it.\n\n@subject\nService Agreement"
    )
    write_file("enron_subject_line/train/allen-p_inbox_21.subject", "no subject here")
    write_file("enron_subject_line/dev/allen-p_inbox_22.subject", "dev\n@subject\ndev")
    write_file(
        "enron_subject_line/test/badeer-r_sent_1.subject", "Hi\r\n\r\n@subject\r\nMeeting\r\n\r\n@ann0\r\nother\r\n"
    )
    corpus = aeslc(tmp_path)
    assert corpus.column("source") == ["Greg, attached is it.", "Hi"]
    assert corpus.column("target") == ["Service Agreement", "Meeting"]
    assert corpus.column("client") == ["allen-p", "badeer-r"]
    assert corpus.report.drop_counts == {"rows with an empty source or target": 1}


def test_bbc_keeps_duplicate_articles_in_one_split(write_file: WriteFile, tmp_path: Path) -> None:
    for topic, shift in (("tech", 0), ("sport", 5)):
        for i in range(10):
            write_file(
                f"News Articles/{topic}/{i:03d}.txt", f"Title {i + shift}\n\nBody costs £{i + shift}.", "latin-1"
            )
            write_file(f"Summaries/{topic}/{i:03d}.txt", f"Body {i + shift}.")
    write_file("News Articles/tech/010.txt", "alone")
    corpus = bbc(tmp_path)
    assert (corpus.num_train, len(corpus)) == (16, 20)
    assert not set(corpus.column("source")[: corpus.num_train]) & set(corpus.column("source")[corpus.num_train :])
    row = corpus.column("source").index("Title 0 Body costs £0.")
    assert (corpus.column("target")[row], corpus.column("domain")[row]) == ("Body 0.", "tech")
    assert corpus.report.drop_counts == {"articles without a summary": 1}
