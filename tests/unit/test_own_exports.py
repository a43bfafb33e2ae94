"""Files as other programs write them: what would be read wrongly is refused, or a finding."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.inspection.corpus_inspection import inspect_corpus
from motet.datasets.inspection.findings import find_problems
from motet.datasets.load_corpus import DataConfig, read_corpus

LABELS = ("heart", "lung", "skin")


def read(path: Path, content: str | bytes, task: str | None = None, **options: Any) -> Corpus:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_corpus(DataConfig(path=str(path), **options), task)


def table(header: list[str], *columns: list[Any], count: int = 60) -> str:
    """Return a CSV file. Its first column has texts, the others repeat their values."""
    stream = io.StringIO()
    rows = ([f"the text of case {i}", *(values[i % len(values)] for values in columns)] for i in range(count))
    csv.writer(stream).writerows([header, *rows])
    return stream.getvalue()


def json_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def find(corpus: Corpus) -> dict[str, bool]:
    """Return the messages of all findings, and whether each stops a run."""
    return {finding.message: finding.is_mistake for finding in find_problems(inspect_corpus(corpus))}


@pytest.mark.parametrize("column", ["target", "tags", "source", "second", "answers", "topic"])
def test_a_second_column_is_never_passed_over_for_language_modeling(column: str, tmp_path: Path) -> None:
    content = table(["text", column], list(LABELS))
    with pytest.raises(DataError, match=rf"would be language modeling; name the column .* example data.label={column}"):
        read(tmp_path / "t.csv", content)
    corpus = read(tmp_path / "t.csv", content, "lm")
    assert corpus.report.unused_columns == (column,)
    assert list(corpus.report.columns) == ["text"]
    assert read(tmp_path / "t.csv", content, label=column).task == "classification"


def test_columns_that_a_task_does_not_read_are_named(tmp_path: Path) -> None:
    row = {"instruction": "list", "context": "a, b", "output": "a and b", "category": "qa"}
    assert read(tmp_path / "t.jsonl", json_lines([row] * 9)).report.unused_columns == ("context", "category")


def test_answers_of_prodigy_are_a_warning(tmp_path: Path) -> None:
    rows = [{"text": f"case {i}", "label": LABELS[i % 3], "_task_hash": i, "answer": "reject"} for i in range(60)]
    findings = find(read(tmp_path / "t.jsonl", json_lines(rows)))
    assert [stops for text, stops in findings.items() if "in which Prodigy writes accept, reject" in text] == [False]
