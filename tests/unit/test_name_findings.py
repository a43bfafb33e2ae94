"""Findings about the names of labels and clients."""

from __future__ import annotations

import pytest

from motet.datasets.column_types import cast_columns
from motet.datasets.corpus import Corpus
from motet.datasets.inspection.corpus_inspection import inspect_corpus
from motet.datasets.inspection.findings import find_problems
from motet.datasets.raw_table import TableBuilder
from motet.datasets.read_log import ReadLog

SIZE = 60


def corpus_of(task: str = "classification", **columns: list[object]) -> Corpus:
    """Return a corpus whose columns repeat these values."""
    repeated = {name: [values[i % len(values)] for i in range(SIZE)] for name, values in columns.items()}
    return Corpus(
        "own",
        task,
        {"text": [f"the text of case {i}" for i in range(SIZE)], "label": ["a", "b"] * 30, **repeated},
        SIZE,
    )


def find(corpus: Corpus) -> dict[str, bool]:
    return {finding.message: finding.is_mistake for finding in find_problems(inspect_corpus(corpus))}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["True", "1", "no"], "the labels '1' (20), 'True' (20), 'no' (20) say yes or no in several ways."),
        (["a;b", "b;c", "a;c"], "'a;b' (20), 'b;c' (20): labels that look like several labels."),
        (["s\u00c3\u00a9v\u00c3\u00a8re", "mild"], "'s\u00c3\u00a9v\u00c3\u00a8re' (30): labels with characters that were decoded wrongly."),
        (["b\ufffdse", "gut"], "'b\ufffdse' (30): labels with characters that were decoded wrongly."),
        (["3-May", "6-10", "11+"], "'3-May' (20): labels that are dates, unlike the others."),
        (["2024-05-03 00:00:00", "6-10", "11+"], "'2024-05-03 00:00:00' (20): labels that are dates, unlike the others."),
        (['{"choices": ["a", "b"]}', "c"], '\'{"choices": ["a", "b"]}\' (30): labels that look like several labels.'),
    ],
)  # fmt: skip
def test_labels_in_several_ways_of_writing(labels: list[object], message: str) -> None:
    assert message in find(corpus_of(label=labels))


@pytest.mark.parametrize(
    "labels",
    [
        ["0", "1"],
        ["yes", "no", "maybe"],
        ["true", "mostly-true", "false"],
        ["1", "2"],
        ["sport/golf", "sport/chess", "art/film"],
        ["2024-01-01", "2024-01-02", "2024-01-03"],
        ["\u00c9t\u00e9", "\u0434\u0430", "march", "may"],
    ],
)
def test_ordinary_labels_have_no_findings(labels: list[object]) -> None:
    assert not find(corpus_of(label=labels))


def test_lists_of_one_label_are_a_warning_and_can_be_read_as_labels() -> None:
    findings = find(corpus_of("multi_label", labels=[["a"], ["b"], []]))
    assert findings == {"no text has more than one label, and 20 have none.": False}
    assert not find(corpus_of("multi_label", labels=[["a"], ["a", "b"], []]))
    table = TableBuilder()
    table.start_file("own.jsonl")
    for i, label in enumerate("ab"):
        table.add_row(i, {"text": str(i), "label": [label]})
    assert list(cast_columns(table.build(), "classification", ReadLog.__new__(ReadLog), 2)["label"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        (["North", "north", "south"], "the clients 'North' (20), 'north' (20) differ only in case, spaces or"),
        (["017", "17", "18"], "the clients '017' (20), '17' (20) differ only in"),
        (["n\u00c3\u00b6rdlich", "south"], "clients with characters that were decoded wrongly."),
        (["05. Mai", "6-10", "2-3"], "'05. Mai' (20): clients that are dates, unlike the others."),
        (["nan", "south"], "'nan' (30): clients that look like missing values."),
        (["1.23457E+12", "9.87654E+11"], "clients that are rounded numbers, as Excel writes long ones."),
        ([str(i) for i in range(SIZE)], "there are 60 clients for 60 training rows. Check data.client."),
    ],
)
def test_doubtful_clients_are_a_warning(clients: list[object], message: str) -> None:
    corpus = corpus_of(client=clients)
    assert [stops for text, stops in find(corpus).items() if message in text] == [False]
    inspection = inspect_corpus(corpus)
    assert not inspection.to_dict(with_samples=False)["client_doubts"]
    assert not [finding for finding in find_problems(inspection, is_one_client=True) if finding.kind == "clients"]


def test_ordinary_clients_have_no_findings() -> None:
    assert not find(corpus_of(client=["north", "north-east", "", "1"]))


def test_clients_with_another_name_in_the_test_rows_are_a_warning() -> None:
    corpus = corpus_of(client=["017", "18"])
    corpus = Corpus("own", corpus.task, {**corpus.columns, "client": ["017", "18"] * 20 + ["17", "18"] * 10}, 40)
    assert any("the clients '017' (20), '17' (0) differ only in case" in message for message in find(corpus))
