from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.qa_corpora import mrqa, newsqa, policyqa, squad, squad2, squadshifts, subjqa

Put = Callable[..., Path]


def articles(*titles: str, paragraphs: int = 2, **more: Any) -> str:
    """For each title some paragraphs with two questions each."""

    def paragraph(title: str, number: int) -> dict[str, Any]:
        context = f"{title} {number} has an answer."
        qas = [
            {
                "id": f"{title}{number}{q}",
                "question": "What?",
                "answers": [{"text": "answer", "answer_start": 0}],
                **more,
            }
            for q in "ab"
        ]
        return {"context": context, "qas": qas}

    made = [{"title": title, "paragraphs": [paragraph(title, i) for i in range(paragraphs)]} for title in titles]
    return json.dumps({"version": "1.1", "data": made})


def sides(corpus: Corpus, column: str) -> tuple[set[str], set[str]]:
    values = corpus.column(column)
    return set(values[: corpus.num_train]), set(values[corpus.num_train :])


def test_squad_has_a_training_and_a_dev_file(put: Put, tmp_path: Path) -> None:
    put("train-v1.1.json", articles("Rain"))
    put("dev-v1.1.json", articles("Snow"))
    put("dev-v2.0.json", articles("Other"))
    corpus = squad(tmp_path)
    assert (corpus.num_train, len(corpus)) == (4, 8)
    assert sides(corpus, "title") == ({"Rain"}, {"Snow"})
    assert corpus.column("starts")[0] == [14]


def test_a_dev_file_alone_is_split_by_article(put: Put, tmp_path: Path) -> None:
    put("dev-v1.1.json", articles(*"abcdefghij"))
    corpus = squad(tmp_path)
    train, test = sides(corpus, "title")
    assert (len(train), len(test)) == (8, 2)
    assert not train & test
    assert squad(tmp_path).fingerprint == corpus.fingerprint


def test_a_dev_file_of_one_article_is_split_by_context(put: Put, tmp_path: Path) -> None:
    put("dev-v1.1.json", articles("a", paragraphs=10))
    train, test = sides(squad(tmp_path), "context")
    assert (len(train), len(test)) == (8, 2)
    assert not train & test


def test_squad_2_has_questions_without_an_answer(put: Put, tmp_path: Path) -> None:
    put("train-v2.0.json", articles("Rain", is_impossible=True))
    put("dev-v2.0.json", articles("Snow"))
    corpus = squad2(tmp_path)
    assert corpus.column("answers") == [[]] * 4 + [["answer"]] * 4
    with pytest.raises(
        DataError, match=r"squad: there is no file 'train-v1.1.json' .* or read the other version with squad2"
    ):
        squad(tmp_path)


def lines(*questions: tuple[str, str, str]) -> str:
    made: list[dict[str, Any]] = [{"header": {"dataset": "x"}}]
    for key, context, answer in questions:
        spans = [{"text": answer, "char_spans": [[context.find(answer), 0]]}]
        made.append({"context": context, "qas": [{"qid": key, "question": "What?", "detected_answers": spans}]})
    return "".join(json.dumps(line) + "\n" for line in made)


def test_a_sub_dataset_of_mrqa_is_a_domain(put: Put, tmp_path: Path) -> None:
    put("train/SQuAD.jsonl.gz", lines(("s1", "a caf\xe9 — one", "one"), ("s2", "two", "two"), ("s3", "x", "y")))
    put("dev/SQuAD.jsonl.gz", lines(("s4", "four", "four"), ("s5", "five", "five")))
    put("train/TriviaQA-web.jsonl.gz", lines(("t1", "one", "one")))
    put("dev/TriviaQA-web.jsonl.gz", lines(("t2", "two", "two")))
    put("dev/BioASQ.jsonl.gz", lines(("b1", "one", "one")))
    corpus = mrqa(tmp_path)
    assert corpus.column("id") == ["s1", "s2", "t1", "s4", "s5", "t2"]
    assert corpus.column("domain") == ["SQuAD", "SQuAD", "TriviaQA-web", "SQuAD", "SQuAD", "TriviaQA-web"]
    assert (corpus.column("context")[0], corpus.column("starts")[0]) == ("a caf  one", [7])
    assert "1 corpora without a training part" in corpus.source
    assert "1 questions whose answer is not in the context" in corpus.source
    few = mrqa(tmp_path, train=1, dev=1, ascii_only=False)
    assert few.column("id") == ["s1", "t1", "s4", "t2"]
    assert few.column("context")[0] == "a caf\xe9 — one"


def test_files_of_mrqa_may_lie_beside_each_other(put: Put, tmp_path: Path) -> None:
    put("HotpotQA.jsonl", lines(("h1", "one", "one")))
    put("HotpotQA-dev.jsonl", lines(("h2", "two", "two")))
    corpus = mrqa(tmp_path)
    assert corpus.column("id") == ["h1", "h2"]
    assert corpus.column("domain") == ["HotpotQA"] * 2


def test_dev_files_of_mrqa_alone_are_split_by_context(put: Put, tmp_path: Path) -> None:
    put("dev/RACE.jsonl.gz", lines(*((f"r{i}", f"text {i // 2} one", "one") for i in range(20))))
    corpus = mrqa(tmp_path)
    train, test = sides(corpus, "context")
    assert not train & test
    assert (corpus.num_train, len(corpus)) == (16, 20)


def test_newsqa_is_found_among_the_others_and_read_whole(put: Put, tmp_path: Path) -> None:
    put("train/NewsQA.jsonl.gz", lines(*((f"n{i}", "caf\xe9 one", "one") for i in range(3))))
    put("dev/NewsQA.jsonl.gz", lines(("n9", "two", "two")))
    put("train/SQuAD.jsonl.gz", lines(("s1", "one", "one")))
    corpus = newsqa(tmp_path)
    assert (corpus.num_train, len(corpus)) == (3, 4)
    assert corpus.column("context")[0] == "caf\xe9 one"


def test_each_shift_is_a_domain_and_no_context_is_in_both_parts(put: Put, tmp_path: Path) -> None:
    put("new_wiki_v1.0.json", articles("a", paragraphs=10))
    put("nyt_v1.0.json", articles("b", paragraphs=10))
    put("other.json", "{")
    corpus = squadshifts(tmp_path)
    assert set(corpus.column("domain")) == {"wiki", "nyt"}
    train, test = sides(corpus, "context")
    assert not train & test
    assert (corpus.num_train, len(corpus)) == (32, 40)


HEADER = ["item_id", "domain", "q_review_id", "question", "review", "human_ans_spans", "human_ans_indices"]


def opinions(*rows: tuple[str, str, str, str]) -> str:
    """Rows of id, review, answer and its span."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(HEADER)
    for key, review, answer, span in rows:
        writer.writerow(["i", "grocery", key, "How is it?", f"{review} ANSWERNOTFOUND", answer, span])
    return text.getvalue()


def test_what_several_readers_marked_is_one_question(put: Put, tmp_path: Path) -> None:
    review = 'It was good, very good.\n"Fine", too.'
    marked = [
        ("a", review, "good , very", "(7, 17)"),
        ("a", review, "ANSWERNOTFOUND", "(40, 54)"),
        ("a", review, "Fine", "(0, 4)"),
    ]
    put(
        "grocery/train.csv",
        opinions(*marked, ("b", review, "ANSWERNOTFOUND", "(40, 54)"), ("c", review, "It good", "(0, 11)")),
    )
    put("grocery/test.csv", opinions(("d", review, "very good", "(13, 22)")))
    corpus = subjqa(tmp_path)
    assert corpus.column("id") == ["a", "b", "d"]
    assert corpus.column("context") == [review] * 3
    assert corpus.column("answers") == [["good, very", "Fine"], [], ["very good"]]
    assert corpus.column("starts") == [[7, 25], [], [13]]
    assert corpus.column("domain") == ["grocery"] * 3
    assert corpus.source == "grocery; left out: 1 questions whose answer is not in the context"


def test_a_table_of_opinions_without_its_columns_is_refused(put: Put, tmp_path: Path) -> None:
    put("grocery/train.csv", "question,answer\na,b\n")
    put("grocery/test.csv", "question,answer\na,b\n")
    with pytest.raises(
        DataError, match=r"subjqa: train.csv has no column 'q_review_id'; its first line names question, answer"
    ):
        subjqa(tmp_path)


def test_a_website_of_policyqa_is_a_client(put: Put, tmp_path: Path) -> None:
    put("dev.json", articles("a.com", "b.com"))
    put("test.json", articles("c.com"))
    corpus = policyqa(tmp_path)
    assert corpus.source == "dev.json, test.json"
    assert sides(corpus, "client") == ({"a.com", "b.com"}, {"c.com"})
    put("train.json", articles("d.com"))
    assert sides(policyqa(tmp_path), "client") == ({"d.com"}, {"c.com"})
