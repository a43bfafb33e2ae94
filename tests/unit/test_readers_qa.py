"""The readers of corpora for question answering, on small files made by hand."""

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

WriteFile = Callable[..., Path]


def articles(*titles: str, paragraphs: int = 2, **extra: Any) -> str:
    """A SQuAD file: for each title, paragraphs with two questions each."""

    def paragraph(title: str, number: int) -> dict[str, Any]:
        context = f"{title} {number} has an answer."
        qas = [
            {
                "id": f"{title}{number}{q}",
                "question": "What?",
                "answers": [{"text": "answer", "answer_start": 0}],
                **extra,
            }
            for q in "ab"
        ]
        return {"context": context, "qas": qas}

    data = [{"title": title, "paragraphs": [paragraph(title, i) for i in range(paragraphs)]} for title in titles]
    return json.dumps({"version": "1.1", "data": data})


def split_values(corpus: Corpus, column: str) -> tuple[set[str], set[str]]:
    values = corpus.column(column)
    return set(values[: corpus.num_train]), set(values[corpus.num_train :])


def test_squad_reads_a_training_and_a_dev_file(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("train-v1.1.json", articles("Rain"))
    write_file("dev-v1.1.json", articles("Snow"))
    write_file("dev-v2.0.json", articles("Other"))
    corpus = squad(tmp_path)
    assert (corpus.num_train, len(corpus)) == (4, 8)
    assert split_values(corpus, "title") == ({"Rain"}, {"Snow"})
    assert corpus.column("starts")[0] == [14]


def test_squad_dev_file_alone_is_split_by_article(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("dev-v1.1.json", articles(*"abcdefghij"))
    corpus = squad(tmp_path)
    train, test = split_values(corpus, "title")
    assert (len(train), len(test)) == (8, 2)
    assert not train & test
    assert squad(tmp_path).fingerprint == corpus.fingerprint


def test_squad_dev_file_of_one_article_is_split_by_context(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("dev-v1.1.json", articles("a", paragraphs=10))
    train, test = split_values(squad(tmp_path), "context")
    assert (len(train), len(test)) == (8, 2)
    assert not train & test


def test_squad2_has_unanswerable_questions(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("train-v2.0.json", articles("Rain", is_impossible=True))
    write_file("dev-v2.0.json", articles("Snow"))
    corpus = squad2(tmp_path)
    assert corpus.column("answers") == [[]] * 4 + [["answer"]] * 4
    with pytest.raises(
        DataError, match=r"squad: there is no file 'train-v1.1.json' .* or use squad2 for the other version"
    ):
        squad(tmp_path)


def mrqa_file(*questions: tuple[str, str, str]) -> str:
    records: list[dict[str, Any]] = [{"header": {"dataset": "x"}}]
    for key, context, answer in questions:
        spans = [{"text": answer, "char_spans": [[context.find(answer), 0]]}]
        records.append({"context": context, "qas": [{"qid": key, "question": "What?", "detected_answers": spans}]})
    return "".join(json.dumps(record) + "\n" for record in records)


def test_mrqa_subcorpora_are_domains(write_file: WriteFile, tmp_path: Path) -> None:
    write_file(
        "train/SQuAD.jsonl.gz", mrqa_file(("s1", "a caf\xe9 — one", "one"), ("s2", "two", "two"), ("s3", "x", "y"))
    )
    write_file("dev/SQuAD.jsonl.gz", mrqa_file(("s4", "four", "four"), ("s5", "five", "five")))
    write_file("train/TriviaQA-web.jsonl.gz", mrqa_file(("t1", "one", "one")))
    write_file("dev/TriviaQA-web.jsonl.gz", mrqa_file(("t2", "two", "two")))
    write_file("dev/BioASQ.jsonl.gz", mrqa_file(("b1", "one", "one")))
    corpus = mrqa(tmp_path)
    assert corpus.column("id") == ["s1", "s2", "t1", "s4", "s5", "t2"]
    assert corpus.column("domain") == ["SQuAD", "SQuAD", "TriviaQA-web", "SQuAD", "SQuAD", "TriviaQA-web"]
    assert (corpus.column("context")[0], corpus.column("starts")[0]) == ("a caf  one", [7])
    assert [name for name in corpus.report.ignored_files if name.endswith("(no training file)")]
    assert corpus.report.drop_counts == {"questions whose answer is not in the context": 1}
    limited = mrqa(tmp_path, train_limit=1, dev_limit=1, ascii_only=False)
    assert limited.column("id") == ["s1", "t1", "s4", "t2"]
    assert limited.column("context")[0] == "a caf\xe9 — one"


def test_mrqa_reads_files_of_one_folder(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("HotpotQA.jsonl", mrqa_file(("h1", "one", "one")))
    write_file("HotpotQA-dev.jsonl", mrqa_file(("h2", "two", "two")))
    corpus = mrqa(tmp_path)
    assert corpus.column("id") == ["h1", "h2"]
    assert corpus.column("domain") == ["HotpotQA"] * 2


def test_mrqa_dev_files_alone_are_split_by_context(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("dev/RACE.jsonl.gz", mrqa_file(*((f"r{i}", f"text {i // 2} one", "one") for i in range(20))))
    corpus = mrqa(tmp_path)
    train, test = split_values(corpus, "context")
    assert not train & test
    assert (corpus.num_train, len(corpus)) == (16, 20)


def test_newsqa_is_found_among_other_corpora_and_read_completely(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("train/NewsQA.jsonl.gz", mrqa_file(*((f"n{i}", "caf\xe9 one", "one") for i in range(3))))
    write_file("dev/NewsQA.jsonl.gz", mrqa_file(("n9", "two", "two")))
    write_file("train/SQuAD.jsonl.gz", mrqa_file(("s1", "one", "one")))
    corpus = newsqa(tmp_path)
    assert (corpus.num_train, len(corpus)) == (3, 4)
    assert corpus.column("context")[0] == "caf\xe9 one"


def test_squadshifts_domains_and_contexts_in_one_split(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("new_wiki_v1.0.json", articles("a", paragraphs=10))
    write_file("nyt_v1.0.json", articles("b", paragraphs=10))
    write_file("other.json", "{")
    corpus = squadshifts(tmp_path)
    assert set(corpus.column("domain")) == {"wiki", "nyt"}
    train, test = split_values(corpus, "context")
    assert not train & test
    assert (corpus.num_train, len(corpus)) == (32, 40)


SUBJQA_HEADER = ["item_id", "domain", "q_review_id", "question", "review", "human_ans_spans", "human_ans_indices"]


def subjqa_file(*rows: tuple[str, str, str, str]) -> str:
    """A SubjQA file with rows of id, review, answer and span."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(SUBJQA_HEADER)
    for key, review, answer, span in rows:
        writer.writerow(["i", "grocery", key, "How is it?", f"{review} ANSWERNOTFOUND", answer, span])
    return text.getvalue()


def test_subjqa_merges_the_answers_of_several_annotators(write_file: WriteFile, tmp_path: Path) -> None:
    review = 'It was good, very good.\n"Fine", too.'
    annotations = [
        ("a", review, "good , very", "(7, 17)"),
        ("a", review, "ANSWERNOTFOUND", "(40, 54)"),
        ("a", review, "Fine", "(0, 4)"),
    ]
    write_file(
        "grocery/train.csv",
        subjqa_file(*annotations, ("b", review, "ANSWERNOTFOUND", "(40, 54)"), ("c", review, "It good", "(0, 11)")),
    )
    write_file("grocery/test.csv", subjqa_file(("d", review, "very good", "(13, 22)")))
    corpus = subjqa(tmp_path)
    assert corpus.column("id") == ["a", "b", "d"]
    assert corpus.column("context") == [review] * 3
    assert corpus.column("answers") == [["good, very", "Fine"], [], ["very good"]]
    assert corpus.column("starts") == [[7, 25], [], [13]]
    assert corpus.column("domain") == ["grocery"] * 3
    assert corpus.report.drop_counts == {"questions whose answer is not in the context": 1}


def test_subjqa_file_without_its_columns_raises_an_error(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("grocery/train.csv", "question,answer\na,b\n")
    write_file("grocery/test.csv", "question,answer\na,b\n")
    with pytest.raises(
        DataError, match=r"subjqa: train.csv has no column 'q_review_id'; its header names question, answer"
    ):
        subjqa(tmp_path)


def test_policyqa_websites_are_clients(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("dev.json", articles("a.com", "b.com"))
    write_file("test.json", articles("c.com"))
    corpus = policyqa(tmp_path)
    assert [file.name for file in corpus.report.files] == ["dev.json", "test.json"]
    assert split_values(corpus, "client") == ({"a.com", "b.com"}, {"c.com"})
    write_file("train.json", articles("d.com"))
    assert split_values(policyqa(tmp_path), "client") == ({"d.com"}, {"c.com"})
