from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.topic_corpora import ag_news, twenty_news, without_backslashes

Put = Callable[..., Path]


def test_a_post_is_one_line_with_its_headers(put: Put, tmp_path: Path) -> None:
    put("news/20news-bydate-train/sci.med/12", "From: Zo\xeb\r\nSubject: hi\n\nbody\n", "latin-1")
    put("news/20news-bydate-train/alt.atheism/7", "one")
    put("news/20news-bydate-train/.DS_Store", "rubbish")
    put("news/20news-bydate-test/sci.med/99", "two\n")
    corpus = twenty_news(tmp_path)
    assert corpus.column("text") == ["one", "From: Zo\xeb Subject: hi  body", "two"]
    assert corpus.column("label") == ["alt.atheism", "sci.med", "sci.med"]
    assert corpus.num_train == 2


def test_a_missing_half_of_20_newsgroups_is_named(put: Put, tmp_path: Path) -> None:
    put("20news-bydate-train/sci.med/12", "one")
    with pytest.raises(
        DataError, match=r"20news: there is no folder '20news-bydate-test' in .*; unpack 20news-bydate.tar.gz there"
    ):
        twenty_news(tmp_path)


def test_only_the_description_of_a_brief_is_kept(put: Put, tmp_path: Path) -> None:
    put("train.csv", '"3","Title, one","He said ""no"" on\\Monday to \\$5"\n"4","T","text"\n\n"1","only a title"\n')
    put("test.csv", '"1","T","world"\n')
    corpus = ag_news(tmp_path)
    assert corpus.column("text") == ['He said "no" on Monday to $5', "text", "world"]
    assert corpus.column("label") == ["Business", "Sci/Tech", "World"]
    assert corpus.source == "train.csv, test.csv; left out: 1 rows with missing columns"


def test_an_unbalanced_quote_costs_one_brief_at_most(put: Put, tmp_path: Path) -> None:
    put("train.csv", 'Class Index,Title,Description\n2,T,"open\n3,T,whole\n')
    put("test.csv", "1,T,a\n")
    assert ag_news(tmp_path).column("text") == ["open", "whole", "a"]


def test_titles_stay_where_the_training_file_has_them_in_its_texts(put: Put, tmp_path: Path) -> None:
    put("train_5k.csv", '"Title one text",3\n"Other",0\n')
    put("test.csv", '"1","Title","text"\n')
    put("classes.txt", "Monde\nSports\nBusiness\nScience\n")
    corpus = ag_news(tmp_path)
    assert corpus.column("text") == ["Title one text", "Other", "Title text"]
    assert corpus.column("label") == ["Science", "Monde", "Monde"]
    assert "titles kept" in corpus.source


@pytest.mark.parametrize(
    ("line", "says"), [("5,T,text", "label '5' is none of 1, 2, 3, 4"), ("x,T,text", "label 'x' is none")]
)
def test_a_label_that_is_none_is_named_with_its_line(line: str, says: str, put: Put, tmp_path: Path) -> None:
    put("train.csv", f"1,T,text\n{line}\n")
    put("test.csv", "1,T,text\n")
    with pytest.raises(DataError, match=f"train.csv, line 2: {says}"):
        ag_news(tmp_path)


def test_a_backslash_between_words_parts_them() -> None:
    assert without_backslashes("on\\Thursday for \\$5 \\ and\\\\so ...\\\\") == "on Thursday for $5  and so ..."
