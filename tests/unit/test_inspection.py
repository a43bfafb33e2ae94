"""The inspection of a corpus: what it counts, what stops a run, and what does not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from motet.core.errors import ConfigError, DataError
from motet.datasets.corpus import Corpus
from motet.datasets.inspection.check_corpus import check_corpus
from motet.datasets.inspection.column_guess import guess_columns
from motet.datasets.inspection.corpus_inspection import CorpusInspection, inspect_corpus
from motet.datasets.inspection.finding import Finding
from motet.datasets.inspection.findings import find_problems, require_no_mistakes
from motet.datasets.inspection.inspection_table import describe_inspection
from motet.datasets.inspection.table_preview import preview_table
from motet.datasets.inspection.unused_columns import describe_unused
from motet.datasets.load_corpus import BUILTIN_CORPORA, DataConfig
from motet.datasets.read_report import DroppedRows, ReadReport, SourceFile

OWN = DataConfig(path="own.csv")
TRAIN, TEST = 80, 20


def make_corpus(
    texts: Sequence[str] | None = None, labels: Sequence[str] | None = None, report: ReadReport = ReadReport()
) -> Corpus:
    """Build a corpus of 80 training and 20 test rows without a flaw; texts and labels replace the first ones."""
    size = TRAIN + TEST
    columns: dict[str, list[Any]] = {
        "text": [f"the letter number {row} is for you and it was sent in {row + 1000}" for row in range(size)],
        "label": [("food", "music")[row % 2] for row in range(size)],
    }
    for name, values in (("text", texts or ()), ("label", labels or ())):
        columns[name][: len(values)] = values
    return Corpus("own.csv", "classification", columns, TRAIN, report)


def with_rows(corpus: Corpus, changes: Mapping[int, str], column: str = "text") -> Corpus:
    values = list(corpus.columns[column])
    for row, value in changes.items():
        values[row] = value
    return replace(corpus, columns={**corpus.columns, column: values})


def leak_rows(corpus: Corpus, count: int) -> Corpus:
    """Copy training texts over the first test texts."""
    return with_rows(corpus, {TRAIN + row: f"{corpus.columns['text'][row]} " for row in range(count)})


def find_mistakes(corpus: Corpus) -> list[Finding]:
    return [finding for finding in find_problems(inspect_corpus(corpus)) if finding.is_mistake]


def test_a_corpus_without_a_flaw_has_no_findings() -> None:
    assert find_problems(inspect_corpus(make_corpus())) == []


def test_the_table_says_what_a_careful_person_looks_at() -> None:
    report = ReadReport(
        files=(SourceFile("own.csv", 4200, "0", encoding="utf-8", encoding_reason="valid UTF-8", replaced_bytes=3),),
        ignored_files=("README.md (documentation)",),
        num_rows=102,
        dropped=(DroppedRows("rows without a label", 2, ("own.csv, line 7",)),),
        columns={"text": "column 'body' (data.text)"},
        task_reason="inferred from the columns text, label",
    )
    text = "the letter number 0 is for you"
    corpus = leak_rows(with_rows(make_corpus(report=report), {0: text, 1: text, 99: ""}), 2)
    table = describe_inspection(inspect_corpus(corpus))
    assert table["corpus"] == "own.csv: classification (inferred from the columns text, label)"
    assert table["files"] == "own.csv (4.2 kB)"
    assert table["ignored files"] == "README.md (documentation)"
    assert table["columns"] == "text: column 'body' (data.text)"
    assert table["rows"] == "102 read; 80 for training, 20 for testing"
    assert table["left out"] == "2 rows without a label (own.csv, line 7; …)"
    assert table["duplicates"].startswith("0 training rows (0.0 %), 0 test rows; 1 texts occur with different targets")
    assert table["in both splits"] == "2 test texts are also in training (10.0 %)"
    assert table["labels"] == "2 (training + test): food (40 + 10), music (40 + 10)"
    assert table["only in one split"] == "no label"
    assert table["texts"].startswith("0 to 55 characters, median 55; 1 empty")
    assert table["encoding"] == "utf-8 (valid UTF-8); 3 replaced bytes"
    assert table["languages"].startswith("English 99 %")
    assert table["sample 1"] == "text: the letter number 0 is for you | label: food"
    assert "sample 3" in table


def test_texts_in_both_splits_stop_a_run_unless_the_recipe_accepts_them() -> None:
    corpus = leak_rows(make_corpus(), 5)
    with pytest.raises(DataError, match=r"5 of 20 test texts are also training texts \(25.0 %\).*data.accept=\[leak\]"):
        check_corpus(corpus, OWN)
    assert check_corpus(corpus, replace(OWN, accept=("leak",))).leaked == 5


def test_a_few_equal_texts_of_a_large_corpus_are_a_coincidence() -> None:
    texts = [f"text {row}" for row in range(1000)] + ["text 1", "text 2", "text 3"] + [f"more {k}" for k in range(397)]
    corpus = Corpus("own.csv", "lm", {"text": texts}, 1000)
    (finding,) = find_problems(inspect_corpus(corpus))
    assert (finding.kind, finding.is_mistake) == ("leak", False)


def test_repeated_short_lines_are_natural_in_language_modeling() -> None:
    names = ["ROMEO:", "JULIET:"] * 5
    lines = [*names, *(f"line {row} of the play" for row in range(90)), *names, "the end"]
    long_lines = [f"{line} and as long as the lines of a text usually are" for line in lines]
    for texts, is_mistake in ((lines, False), (long_lines, True)):
        (finding,) = find_problems(inspect_corpus(Corpus("play.txt", "lm", {"text": texts}, 100)))
        assert (finding.kind, finding.is_mistake) == ("leak", is_mistake)


def test_empty_texts_are_not_in_both_splits_and_empty_lines_are_no_rows() -> None:
    report = ReadReport(num_rows=200, dropped=(DroppedRows("empty lines", 100),))
    inspection = inspect_corpus(with_rows(make_corpus(report=report), dict.fromkeys((1, 2, 97, 98, 99), "")))
    assert (inspection.leaked, inspection.train.duplicates, inspection.contradictions) == (0, 0, 0)
    assert [finding.kind for finding in find_problems(inspection)] == ["empty"]


def test_a_published_corpus_stops_only_if_half_of_its_test_texts_are_in_training() -> None:
    named = DataConfig(name="agnews")
    assert check_corpus(leak_rows(make_corpus(), 9), named).leaked == 9
    with pytest.raises(DataError, match="10 of 20 test texts"):
        check_corpus(leak_rows(make_corpus(), 10), named)
    stored = replace(leak_rows(make_corpus(), 9), name="agnews")
    assert check_corpus(stored, DataConfig(path="agnews.h5")).is_published
    with pytest.raises(DataError, match="9 of 20 test texts"):
        check_corpus(stored, DataConfig(path="agnews"))  # your own folder with the name of a corpus


def test_questions_about_the_passages_of_training_questions_are_a_leak() -> None:
    columns: dict[str, list[Any]] = {
        "context": [f"passage {row // 2}" for row in range(40)],
        "question": [f"what is in row {row}?" for row in range(40)],
        "answers": [["passage"] if row % 4 else [] for row in range(40)],
        "starts": [[0] if row % 4 else [] for row in range(40)],
    }
    inspection = inspect_corpus(Corpus("own.json", "qa", columns, 31))
    assert (inspection.leaked, inspection.leaked_passages) == (0, 1)
    interleaved = {name: values[::2] + values[1::2] for name, values in columns.items()}
    (mistake,) = find_mistakes(Corpus("own.json", "qa", interleaved, 20))
    assert mistake.message.startswith("20 of 20 test questions are about passages of training questions (100.0 %)")
    assert inspection.train.labels == {"answerable": 23, "unanswerable": 8}


@pytest.mark.parametrize(
    ("corpus", "kind", "message"),
    [
        (with_rows(make_corpus(), dict.fromkeys(range(6), " ")), "empty", "6 of 100 texts are empty"),
        (with_rows(make_corpus(), {0: "caf\ufffd", 1: "th\ufffd"}), "encoding", "2 of 100 texts have a replacement"),
        (with_rows(make_corpus(), {k: f"cafÃ© {k}" for k in range(9)}), "encoding", "9 of 100 texts look like UTF-8"),
        (with_rows(make_corpus(), {0: "Food", 2: "food "}, "label"), "labels", "'Food' (1), 'food ' (1) differ only"),
        (with_rows(make_corpus(), {0: "nan"}, "label"), "labels", "'nan' (1): labels that look like missing"),
        (make_corpus(labels=[str(k) for k in range(80)]), "labels", "there are 80 labels for 80 training rows"),
        (with_rows(make_corpus(), {99: "sport"}, "label"), "labels", "'sport' (1): labels of test rows that no"),
        (make_corpus(labels=["food"] * 80), "labels", "the training rows have one label, 'food'"),
        (
            make_corpus(report=ReadReport(num_rows=120, dropped=(DroppedRows("rows without a text", 20),))),
            "dropped",
            "20 of 120 rows were left out (16.7 %): 20 rows without a text",
        ),
    ],
    ids=[
        "empty",
        "replaced",
        "mojibake",
        "similar labels",
        "missing labels",
        "identifiers",
        "unseen label",
        "one label",
        "dropped",
    ],
)
def test_each_mistake_is_named_with_its_count(corpus: Corpus, kind: str, message: str) -> None:
    findings = [finding for finding in find_mistakes(corpus) if message in finding.message]
    assert [finding.kind for finding in findings] == [kind]


def test_labels_that_no_training_row_has_cannot_be_accepted() -> None:
    corpus = with_rows(make_corpus(), {99: "sport"}, "label")
    with pytest.raises(DataError, match="labels of test rows that no training row has") as error:
        check_corpus(corpus, replace(OWN, accept=("labels",)))
    assert "data.accept" not in str(error.value)
    with pytest.raises(DataError, match=r"were left out .data.limit=80.: use more of them. Otherwise, fix"):
        check_corpus(corpus, replace(OWN, limit=TRAIN))
    with pytest.raises(DataError, match="Fix these rows"):
        check_corpus(corpus, replace(OWN, limit=TRAIN + 1))  # it left no row out
    assert check_corpus(corpus, OWN, is_one_client=True).only_in_test == {"sport": 1}  # other clients may have it


def test_a_leak_of_one_client_is_a_warning() -> None:
    inspection = check_corpus(leak_rows(make_corpus(), 5), OWN, is_one_client=True)
    (finding,) = find_problems(inspection, is_one_client=True)
    assert (finding.kind, finding.is_mistake) == ("leak", False)


def test_equal_sources_and_targets_are_a_mistake_in_the_columns() -> None:
    texts = [f"the text {row}" for row in range(30)]
    (mistake,) = find_mistakes(Corpus("own.csv", "seq2seq", {"source": texts, "target": list(texts)}, 20))
    assert (mistake.kind, mistake.can_accept) == ("columns", True)


def test_entity_types_are_counted_once_per_entity() -> None:
    tags = [["B-LOC", "I-LOC", "O"], ["O", "O", "B-PER"], ["O", "O", "O"]] * 10 + [["B-ORG", "O", "O"]]
    corpus = Corpus("own.conll", "tagging", {"words": [[f"a{k}", "b", "c"] for k in range(31)], "tags": tags}, 30)
    inspection = inspect_corpus(corpus)
    assert inspection.train.labels == {"LOC": 10, "PER": 10}
    (mistake,) = find_mistakes(corpus)
    assert mistake.message == "'ORG' (1): entity types of test rows that no training row has."
    untagged = replace(corpus, columns={**corpus.columns, "tags": [["O"] * 3] * 31})
    assert [mistake.message for mistake in find_mistakes(untagged)] == ["no training word has a tag other than O."]


def test_repeated_cut_and_oversized_texts_are_warnings() -> None:
    repeated = with_rows(make_corpus(), dict.fromkeys(range(0, 30, 2), "the same text for all of them"))
    cut = with_rows(make_corpus(), {k: f"{k:03}".ljust(280, ".") for k in range(25)})
    oversized = with_rows(make_corpus(), {0: "a text\n" * 2000})
    for corpus, kind in ((repeated, "duplicates"), (cut, "cut"), (oversized, "lengths")):
        assert [(f.kind, f.is_mistake) for f in find_problems(inspect_corpus(corpus))] == [(kind, False)]


def test_all_mistakes_are_in_one_message() -> None:
    corpus = with_rows(leak_rows(make_corpus(), 5), dict.fromkeys(range(40, 50), ""))
    with pytest.raises(DataError, match=r"5 of 20 test texts.*10 of 100 texts are empty.*accept=\[leak, empty\]"):
        check_corpus(corpus, OWN)
    with pytest.raises(DataError, match=r"10 of 100 texts are empty.*accept=\[leak, empty\]"):
        require_no_mistakes("own.csv", find_problems(inspect_corpus(corpus)), ("leak",))


def test_what_others_may_read_has_no_texts_of_the_corpus() -> None:
    report = ReadReport(num_rows=101, dropped=(DroppedRows("rows without a label", 1, ("own.csv, 'secret letter'",)),))
    inspection = inspect_corpus(make_corpus(report=report))
    assert CorpusInspection.from_dict(json.loads(json.dumps(inspection.to_dict(with_samples=True)))) == inspection
    text = json.dumps(inspection.to_dict(with_samples=False))
    assert "letter" not in text
    assert "rows without a label" in text


@pytest.mark.parametrize("name", [name for name in BUILTIN_CORPORA if name.startswith("toy")])
def test_the_toy_corpora_pass(name: str) -> None:
    assert check_corpus(BUILTIN_CORPORA[name](), DataConfig(name=name)).name == name


def test_an_unknown_word_in_accept_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"data.accept has 'leaks'; expected some of leak, .* Did you mean 'leak'"):
        DataConfig(path="own.csv", accept=("leaks",))


@pytest.mark.parametrize(
    ("name", "text", "settings"),
    [
        ("a.csv", "body,topic,author\n" + "a long text about bread,food,ann\n" * 4, "text=body label=topic client=author"),
        ("a.tsv", "premise\thypothesis\tlabel\n" + "it rains\tit is wet\tyes\n" * 4, "text=premise second=hypothesis label=label"),
        ("a.tsv", "sentence1\tsentence2\tscore\n" + "it rains\tit is wet\t3.5\n" * 4, "text=sentence1 second=sentence2 score=score"),
        ("a.jsonl", '{"article": "long", "summary": "short"}\n' * 3, "source=article target=summary"),
        ("a.json", '[{"passage": "p", "query": "q", "answer": "a"}]', "context=passage question=query answers=answer"),
        ("a.json", '[{"context": "p", "question": "q", "answers": "a", "answer_start": 1}]', "context=context question=question answers=answers starts=answer_start"),
        ("a.json", '[{"instruction": "i", "context": "c", "response": "r", "category": "x"}]', "instruction=instruction output=response input=context"),
        ("a.json", '[{"id": 1, "conversations": [{"from": "human", "value": "q"}]}]', "messages=conversations"),
        ("a.json", '[{"question": "q", "chosen": "a", "rejected": "b"}]', "prompt=question chosen=chosen rejected=rejected"),
        ("a.json", '[{"question": "q", "answer": "a"}]', "prompt=question completion=answer"),
        ("a.csv", "".join(f"{k % 2},,a text that is long enough {k}\n" for k in range(9)), "text=3 label=1"),
        ("a.csv", "".join(f"{k};{k % 3};an unusually long remark no. {k}\n" for k in range(9)), "text=3 label=2"),
        ("a.csv", "".join(f"a text that is long enough {k},{'no' if k % 2 else 'yes'}\n" for k in range(9)), "text=1 label=2"),
        ("a.csv", ",body,topic\n" + "".join(f"{k},a long text about bread {k},food\n" for k in range(9)), "text=body label=topic"),
        ("a.csv", "sep=;\nBody;Topic;\n" + "".join(f"a long text, no. {k};food;\n" for k in range(9)), "text=Body label=Topic"),
        ("a.csv", "Body\tTopic\n" + "".join(f'"a long text\tno. {k}"\tfood\n' for k in range(9)), "text=Body label=Topic"),
        ("a.csv", "class,body,mood\n" + "".join(f"c-{k},a long text no. {k},{k % 2}\n" for k in range(12)), "text=body label=mood"),
        ("a.jsonl", '{"meta": {"author": "ann", "topic": "x"}, "doc": {"text": "warm bread"}, "topic": "food"}\n' * 3, "text=doc.text label=topic client=meta.author"),
        ("a.csv", "text,label,label\n" + "".join(f"a text that is long enough {k},{k % 2},yes\n" for k in range(9)), None),
        ("a.csv", "id,value\n1,2\n3,4\n", None),
        ("a.bin", "\x00", None),
    ],
)  # fmt: skip
def test_columns_are_guessed_from_their_names_and_values(
    name: str, text: str, settings: str | None, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    guess = guess_columns(preview_table(tmp_path / name))
    expected = None if settings is None else dict(pair.split("=") for pair in settings.split())
    assert (None if guess is None else guess.columns) == expected


def test_data_for_a_task_of_another_package_is_inspected_by_its_columns() -> None:
    columns = {"text": ["one", "two", "one"], "label": ["a", "b", "a"]}
    inspection = inspect_corpus(Corpus("stars", "stars", columns, num_train=2))
    assert inspection.leaked == 1
    assert dict(inspection.train.labels) == {"a": 1, "b": 1}


def test_columns_that_are_not_used_are_described() -> None:
    rows = range(12)
    preview = {
        "id": [str(k) for k in rows],
        "body": [f"text {k}" for k in rows],
        "site": [f"s{k % 3}" for k in rows],
        "written": [f"2024-05-{k + 1:02d}" for k in rows],
        "note": ["x", *map(str, range(10)), "x"],
    }
    expected = (
        "id (a different value in every row), site (3 values in the first 12 rows; perhaps {}), written (dates), note"
    )
    sources = {"text": "column 'body' (data.text)"}
    assert describe_unused(preview, sources) == expected.format("the clients: data.client=site")
    labeled = {**sources, "label": "column 'mood' (data.label)"}
    either = "the labels: data.label=site or the clients: data.client=site"
    assert describe_unused(preview, labeled, is_guess=True) == expected.format(either)
    with_clients = {**sources, "client": "column 'author' (data.client)"}
    assert describe_unused(preview, with_clients) == expected.format("groups: data.columns.domain=site")
    assert describe_unused(preview, {"text": "the lines of the file"}) == ""
    fields = {"body.text": preview["body"], "body.lang": preview["note"], "meta.note": preview["note"]}
    assert describe_unused(fields, sources) == "meta.note", "an object is used as a whole"
    spaced = {"body": preview["body"], "Who wrote?": preview["site"]}
    assert "'data.client=Who wrote?'" in describe_unused(spaced, sources), "as a shell reads it"


def test_columns_of_a_workbook_are_guessed(tmp_path: Path) -> None:
    frame = pytest.importorskip("pandas").DataFrame(
        {"body": ["warm bread today", "an old violin"] * 6, "topic": [1, 2] * 6}
    )
    frame.to_excel(tmp_path / "a.xlsx")
    guess = guess_columns(preview_table(tmp_path / "a.xlsx"))
    assert guess is not None and guess.columns == {"text": "body", "label": "topic"}


def test_no_columns_are_guessed_from_a_line_of_megabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("body,topic\n" + "a long text about bread,food\n" * 4)
    assert list(preview_table(tmp_path / "a.csv")) == ["body", "topic"]
    monkeypatch.setattr("motet.datasets.inspection.table_preview.MAX_LINE_LENGTH", 20)
    assert preview_table(tmp_path / "a.csv") == {}
