from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.sentiment_corpora import amazon, imdb, sentiment140, sst2

Put = Callable[..., Path]
TWEETS = "training.1600000.processed.noemoticon.csv"


def tweet(polarity: int, user: str, text: str) -> str:
    return f'"{polarity}","1467810369","Mon Apr 06 22:19:45 PDT 2009","NO_QUERY","{user}","{text}"\n'


def test_sentences_and_labels_parted_by_a_tab_are_read(put: Put, tmp_path: Path) -> None:
    put("train.tsv", 'a "good film\t1\n\nbad\t0')
    put("dev.tsv", "dev\t0\n")
    put("test.tsv", "fine\t1\r\n")
    corpus = sst2(tmp_path)
    assert corpus.column("text") == ['a "good film', "bad", "fine"]
    assert corpus.column("label") == ["positive", "negative", "positive"]
    assert corpus.num_train == 2


def test_a_test_file_without_labels_gives_way_to_dev(put: Put, tmp_path: Path) -> None:
    put("train.tsv", "sentence\tlabel\ngood \t1\nbad \t0\n")
    put("dev.tsv", "sentence\tlabel\nfine \t1\n")
    put("test.tsv", "index\tsentence\n0\tunknown\n")
    corpus = sst2(tmp_path)
    assert corpus.column("text")[corpus.num_train :] == ["fine"]


def test_a_neutral_tree_is_left_out(put: Put, tmp_path: Path) -> None:
    put("trees/train.txt", "(3 (2 A) (3 (3 good) (2 film)))\n(2 (2 Well) (2 .))\n(0 (1 Bad) (2 one))\n")
    put("trees/test.txt", "(4 (4 Great) (2 -LRB-))\n")
    corpus = sst2(tmp_path)
    assert corpus.column("text") == ["A good film", "Bad one", "Great -LRB-"]
    assert corpus.column("label") == ["positive", "negative", "positive"]
    assert corpus.source == "train.txt, test.txt; left out: 1 neutral sentences"


def test_a_sentence_without_a_label_is_named_with_its_line(put: Put, tmp_path: Path) -> None:
    put("train.tsv", "good\t1\nno label here\n")
    put("test.tsv", "good\t1\n")
    with pytest.raises(
        DataError, match=r"train.tsv, line 2: 'no label here' is neither a sentence, a tab and 0 or 1 nor a tree"
    ):
        sst2(tmp_path)


def test_reviews_lose_their_line_breaks(put: Put, tmp_path: Path) -> None:
    for part in ("train", "test"):
        put(
            f"aclImdb/{part}/pos/0_9.txt",
            f"Good {part}.<br /><br />Caf\xe9!",
            "latin-1" if part == "train" else "utf-8",
        )
        put(f"aclImdb/{part}/neg/0_1.txt", f"Bad {part}.\n")
        put(f"aclImdb/{part}/unsup/0_0.txt", "Unknown.")
    for folder in (tmp_path, tmp_path / "aclImdb"):
        corpus = imdb(folder)
        assert corpus.column("text") == ["Bad train.", "Good train.  Caf\xe9!", "Bad test.", "Good test.  Caf\xe9!"]
        assert corpus.column("label") == ["negative", "positive"] * 2


def test_a_folder_of_reviews_that_is_missing_is_named(put: Put, tmp_path: Path) -> None:
    put("aclImdb/train/pos/0_9.txt", "Good.")
    put("aclImdb/test/pos/0_9.txt", "Good.")
    with pytest.raises(DataError, match=r"imdb: there is no folder 'neg' in .*train; unpack aclImdb_v1.tar.gz there"):
        imdb(tmp_path)


def test_a_neutral_tweet_is_left_out(put: Put, tmp_path: Path) -> None:
    put(
        TWEETS,
        tweet(0, "al", "sad \xe9") + tweet(2, "bo", "meh") + tweet(4, "cy", 'a ""quote"", and "more","still one text'),
        "latin-1",
    )
    put("testdata.manual.2009.06.14.csv", tweet(4, "di", "fine") + tweet(2, "di", "meh"), "latin-1")
    corpus = sentiment140(tmp_path)
    assert corpus.column("text") == ["sad \xe9", 'a "quote", and "more","still one text', "fine"]
    assert corpus.column("label") == ["negative", "positive", "positive"]
    assert corpus.column("client") == ["al", "cy", "di"]
    assert corpus.num_train == 2
    assert "left out: 2 neutral tweets" in corpus.source


def test_without_a_test_file_a_fifth_of_the_tweets_is_kept_for_testing(put: Put, tmp_path: Path) -> None:
    put(TWEETS, "".join(tweet(4 * (i % 2), f"u{i}", f"text {i}") for i in range(20)))
    corpus = sentiment140(tmp_path)
    assert (corpus.num_train, len(corpus)) == (16, 20)


def test_broken_tweets_are_counted_and_odd_polarities_named(put: Put, tmp_path: Path) -> None:
    put(TWEETS, tweet(0, "al", "sad") + '"0","too short"\n\n' + "4,1,date,NO_QUERY,bo,unquoted\n" + tweet(0, "cy", "x"))
    corpus = sentiment140(tmp_path)
    assert sorted(corpus.column("text")) == ["sad", "unquoted", "x"]
    assert corpus.source == f"{TWEETS}; left out: 1 rows with missing columns"
    put(TWEETS, tweet(0, "al", "sad") + tweet(7, "al", "odd"))
    with pytest.raises(DataError, match=r"line 2: polarity '7' is none of 0, 2, 4"):
        sentiment140(tmp_path)


def test_a_department_is_a_domain_and_dev_serves_as_train(put: Put, tmp_path: Path) -> None:
    put("amazon/baby/dev.csv", 'idx,label,text\n7,0,"so, so"\n8,1,\n9,2,"bad ""thing"""\n')
    put("amazon/baby/test.csv", "idx,label,text\n1,1,good\n")
    put("amazon/sport/train.csv", "idx,label,text\n1,1,train\n2,1\n")
    put("amazon/sport/dev.csv", "idx,label,text\n1,1,dev\n")
    put("amazon/sport/test.csv", "idx,label,text\n1,2,test\n")
    corpus = amazon(tmp_path)
    assert corpus.column("text") == ["so, so", 'bad "thing"', "train", "good", "test"]
    assert corpus.column("label") == ["neutral", "negative", "positive", "positive", "negative"]
    assert corpus.column("domain") == ["baby", "baby", "sport", "baby", "sport"]
    assert corpus.num_train == 3
    assert corpus.source == "baby, sport; left out: 1 rows with empty text, 1 rows with missing columns"


def test_a_label_amazon_does_not_have_is_named(put: Put, tmp_path: Path) -> None:
    put("baby/dev.csv", "idx,label,text\n7,5,great\n")
    put("baby/test.csv", "idx,label,text\n7,1,great\n")
    with pytest.raises(DataError, match=r"baby/dev.csv, line 2: label '5' is none of 0, 1, 2"):
        amazon(tmp_path)
