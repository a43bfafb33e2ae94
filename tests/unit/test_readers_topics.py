"""The readers of corpora with topics, on small files made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.topic_corpora import ag_news, remove_backslashes, twenty_news

WriteFile = Callable[..., Path]


def test_20news_posts_are_one_line_with_headers(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("news/20news-bydate-train/sci.med/12", "From: Zo\xeb\r\nSubject: hi\n\nbody\n", "latin-1")
    write_file("news/20news-bydate-train/alt.atheism/7", "one")
    write_file("news/20news-bydate-train/.DS_Store", "ignored")
    write_file("news/20news-bydate-test/sci.med/99", "two\n")
    corpus = twenty_news(tmp_path)
    assert corpus.column("text") == ["one", "From: Zo\xeb Subject: hi  body", "two"]
    assert corpus.column("label") == ["alt.atheism", "sci.med", "sci.med"]
    assert corpus.num_train == 2


def test_20news_missing_split_raises_an_error(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("20news-bydate-train/sci.med/12", "one")
    with pytest.raises(
        DataError,
        match=r"20news: there is no folder '20news-bydate-test' beside 20news-bydate-train in .*; unpack 20news-bydate.tar.gz there",
    ):
        twenty_news(tmp_path)


def test_agnews_keeps_the_description_without_the_title(write_file: WriteFile, tmp_path: Path) -> None:
    write_file(
        "train.csv", '"3","Title, one","He said ""no"" on\\Monday to \\$5"\n"4","T","text"\n\n"1","only a title"\n'
    )
    write_file("test.csv", '"1","T","world"\n')
    corpus = ag_news(tmp_path)
    assert corpus.column("text") == ['He said "no" on Monday to $5', "text", "world"]
    assert corpus.column("label") == ["Business", "Sci/Tech", "World"]
    assert corpus.report.drop_counts == {"rows with missing columns": 1}


@pytest.mark.parametrize("content", ["\n\n", "one column\nanother\n"])
def test_agnews_without_rows_raises_an_error(content: str, write_file: WriteFile, tmp_path: Path) -> None:
    write_file("train.csv", content)
    write_file("test.csv", "1,T,text\n")
    with pytest.raises(DataError, match="train"):
        ag_news(tmp_path)


def test_agnews_unbalanced_quote_affects_one_row(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("train.csv", 'Class Index,Title,Description\n2,T,"open\n3,T,whole\n')
    write_file("test.csv", "1,T,a\n")
    assert ag_news(tmp_path).column("text") == ["open", "whole", "a"]


def test_agnews_keeps_titles_if_the_training_texts_include_them(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("train_5k.csv", '"Title one text",3\n"Other",0\n')
    write_file("test.csv", '"1","Title","text"\n')
    write_file("classes.txt", "Monde\nSports\nBusiness\nScience\n")
    corpus = ag_news(tmp_path)
    assert corpus.column("text") == ["Title one text", "Other", "Title text"]
    assert corpus.column("label") == ["Science", "Monde", "Monde"]
    assert corpus.report.notes == ("The texts have titles, as in the training file.",)


@pytest.mark.parametrize(
    ("line", "message"), [("5,T,text", "label '5' is not one of 1, 2, 3, 4"), ("x,T,text", "label 'x' is not one")]
)
def test_agnews_unknown_label_raises_an_error_with_its_line(
    line: str, message: str, write_file: WriteFile, tmp_path: Path
) -> None:
    write_file("train.csv", f"1,T,text\n{line}\n")
    write_file("test.csv", "1,T,text\n")
    with pytest.raises(DataError, match=f"train.csv, line 2: {message}"):
        ag_news(tmp_path)


def test_backslash_between_words_becomes_a_space() -> None:
    assert remove_backslashes("on\\Thursday for \\$5 \\ and\\\\so ...\\\\") == "on Thursday for $5  and so ..."


def test_20news_folder_of_another_corpus_raises_an_error(write_file: WriteFile, tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_file(f"20news-bydate-{split}/business/1", "one")
    with pytest.raises(DataError, match=r"business' is not one of the 20 newsgroups"):
        twenty_news(tmp_path)
