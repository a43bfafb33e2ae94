"""The readers of reviews and tweets with sentiments, on small files made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.sentiment_corpora import amazon, imdb, sentiment140, sst2

WriteFile = Callable[..., Path]
TWEETS = "training.1600000.processed.noemoticon.csv"


def tweet(polarity: int, user: str, text: str) -> str:
    return f'"{polarity}","1467810369","Mon Apr 06 22:19:45 PDT 2009","NO_QUERY","{user}","{text}"\n'


def test_sst2_reads_sentences_and_labels_from_tsv(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("train.tsv", 'a "good film\t1\n\nbad\t0')
    write_file("dev.tsv", "dev\t0\n")
    write_file("test.tsv", "fine\t1\r\n")
    corpus = sst2(tmp_path)
    assert corpus.column("text") == ['a "good film', "bad", "fine"]
    assert corpus.column("label") == ["positive", "negative", "positive"]
    assert corpus.num_train == 2


def test_sst2_uses_dev_if_the_test_file_has_no_labels(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("train.tsv", "sentence\tlabel\ngood \t1\nbad \t0\n")
    write_file("dev.tsv", "sentence\tlabel\nfine \t1\n")
    write_file("test.tsv", "index\tsentence\n0\tunknown\n")
    corpus = sst2(tmp_path)
    assert corpus.column("text")[corpus.num_train :] == ["fine"]


def test_sst2_reads_trees_and_skips_neutral_sentences(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("trees/train.txt", "(3 (2 A) (3 (3 good) (2 film)))\n(2 (2 Well) (2 .))\n(0 (1 Bad) (2 one))\n")
    write_file("trees/test.txt", "(4 (4 Great) (2 -LRB-))\n")
    corpus = sst2(tmp_path)
    assert corpus.column("text") == ["A good film", "Bad one", "Great -LRB-"]
    assert corpus.column("label") == ["positive", "negative", "positive"]
    assert corpus.report.drop_counts == {"neutral sentences": 1}


def test_sst2_sentence_without_label_raises_an_error_with_its_line(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("train.tsv", "good\t1\nno label here\n")
    write_file("test.tsv", "good\t1\n")
    with pytest.raises(
        DataError, match=r"train.tsv, line 2: 'no label here' is neither a sentence, a tab and 0 or 1, nor a tree"
    ):
        sst2(tmp_path)


def test_imdb_removes_html_line_breaks(write_file: WriteFile, tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_file(
            f"aclImdb/{split}/pos/0_9.txt",
            f"Good {split}.<br /><br />Caf\xe9!",
            "latin-1" if split == "train" else "utf-8",
        )
        write_file(f"aclImdb/{split}/neg/0_1.txt", f"Bad {split}.\n")
        write_file(f"aclImdb/{split}/unsup/0_0.txt", "Unknown.")
    for folder in (tmp_path, tmp_path / "aclImdb"):
        corpus = imdb(folder)
        assert corpus.column("text") == ["Bad train.", "Good train.  Caf\xe9!", "Bad test.", "Good test.  Caf\xe9!"]
        assert corpus.column("label") == ["negative", "positive"] * 2


def test_imdb_missing_folder_raises_an_error(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("aclImdb/train/pos/0_9.txt", "Good.")
    write_file("aclImdb/test/pos/0_9.txt", "Good.")
    with pytest.raises(DataError, match=r"imdb: there is no folder 'neg' in .*train; unpack aclImdb_v1.tar.gz there"):
        imdb(tmp_path)


def test_sentiment140_skips_neutral_tweets(write_file: WriteFile, tmp_path: Path) -> None:
    write_file(
        TWEETS,
        tweet(0, "al", "sad \xe9") + tweet(2, "bo", "meh") + tweet(4, "cy", 'a ""quote"", and "more","still one text'),
        "latin-1",
    )
    write_file("testdata.manual.2009.06.14.csv", tweet(4, "di", "fine") + tweet(2, "di", "meh"), "latin-1")
    corpus = sentiment140(tmp_path)
    assert corpus.column("text") == ["sad \xe9", 'a "quote", and "more","still one text', "fine"]
    assert corpus.column("label") == ["negative", "positive", "positive"]
    assert corpus.column("client") == ["al", "cy", "di"]
    assert corpus.num_train == 2
    assert corpus.report.drop_counts["neutral tweets"] == 2


def test_sentiment140_without_test_file_holds_out_a_fifth(write_file: WriteFile, tmp_path: Path) -> None:
    write_file(TWEETS, "".join(tweet(4 * (i % 2), f"u{i}", f"text {i}") for i in range(20)))
    corpus = sentiment140(tmp_path)
    assert (corpus.num_train, len(corpus)) == (16, 20)


def test_sentiment140_counts_broken_rows_and_reports_unknown_polarities(write_file: WriteFile, tmp_path: Path) -> None:
    write_file(
        TWEETS, tweet(0, "al", "sad") + '"0","too short"\n\n' + "4,1,date,NO_QUERY,bo,unquoted\n" + tweet(0, "cy", "x")
    )
    corpus = sentiment140(tmp_path)
    assert sorted(corpus.column("text")) == ["sad", "unquoted", "x"]
    assert corpus.report.summary == f"{TWEETS}; dropped: 1 rows with missing columns"
    write_file(TWEETS, tweet(0, "al", "sad") + tweet(7, "al", "unknown"))
    with pytest.raises(DataError, match=r"line 2: polarity '7' is not one of 0, 2, 4"):
        sentiment140(tmp_path)


def test_amazon_departments_are_domains_and_dev_replaces_a_missing_training_file(
    write_file: WriteFile, tmp_path: Path
) -> None:
    write_file("amazon/baby/dev.csv", 'idx,label,text\n7,0,"so, so"\n8,1,\n9,2,"bad ""thing"""\n')
    write_file("amazon/baby/test.csv", "idx,label,text\n1,1,good\n")
    write_file("amazon/sport/train.csv", "idx,label,text\n1,1,train\n2,1\n")
    write_file("amazon/sport/dev.csv", "idx,label,text\n1,1,dev\n")
    write_file("amazon/sport/test.csv", "idx,label,text\n1,2,test\n")
    corpus = amazon(tmp_path)
    assert corpus.column("text") == ["so, so", 'bad "thing"', "train", "good", "test"]
    assert corpus.column("label") == ["neutral", "negative", "positive", "positive", "negative"]
    assert corpus.column("domain") == ["baby", "baby", "sport", "baby", "sport"]
    assert corpus.num_train == 3
    assert corpus.report.drop_counts == {"rows with empty text": 1, "rows with missing columns": 1}


def test_amazon_unknown_label_raises_an_error(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("baby/dev.csv", "idx,label,text\n7,5,great\n")
    write_file("baby/test.csv", "idx,label,text\n7,1,great\n")
    with pytest.raises(DataError, match=r"baby/dev.csv, line 2: label '5' is not one of 0, 1, 2"):
        amazon(tmp_path)
