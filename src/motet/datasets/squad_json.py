"""Questions on a text with the places of their answers: SQuAD's json, versions 1.1 and 2.0, and the jsonl of MRQA."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from motet.core.errors import DataError
from motet.datasets.original_files import read_json, read_jsonl
from motet.datasets.splits import Columns

QA_COLUMNS = ("id", "context", "question", "answers", "starts")
ANSWER_NOT_IN_CONTEXT = "questions whose answer is not in the context"
_UNPRINTABLE = dict.fromkeys(set(range(128)) - {ord(c) for c in string.printable})


def printable_ascii(text: str) -> str:
    """The printable ASCII of a text."""
    return text.encode("ascii", "ignore").decode("ascii").translate(_UNPRINTABLE)


def find_answer(context: str, answer: str, start: int) -> int:
    """Where an answer begins: where it is said to, otherwise where it first occurs, otherwise −1."""
    return start if start >= 0 and context.startswith(answer, start) else context.find(answer)


def find_answers(context: str, answers: Iterable[tuple[str, int]]) -> tuple[list[str], list[int]]:
    """The distinct answers that occur in the context, and where."""
    starts: dict[str, int] = {}
    for answer, said in answers:
        start = find_answer(context, answer, said)
        if start >= 0:
            starts.setdefault(answer, start)
    return list(starts), list(starts.values())


def add_question(
    rows: Columns, values: Mapping[str, Any], answers: list[tuple[str, int]], left_out: Counter[str]
) -> None:
    """One question, unless it has answers and none of them occurs in its context."""
    texts, starts = find_answers(values["context"], answers)
    if answers and not texts:
        left_out[ANSWER_NOT_IN_CONTEXT] += 1
        return
    for name, value in {**values, "answers": texts, "starts": starts}.items():
        rows.setdefault(name, []).append(value)


def read_squad(path: Path, left_out: Counter[str]) -> Columns:
    """The questions of a SQuAD file; those that cannot be answered have no answers. `title` is the article."""
    rows: Columns = {name: [] for name in (*QA_COLUMNS, "title")}
    for number, article in enumerate(_list(path, read_json(path), "data", "the file"), 1):
        where = f"article {number}"
        for paragraph in _list(path, article, "paragraphs", where):
            context = _text(path, paragraph, "context", where)
            for question in _list(path, paragraph, "qas", where):
                asked = f"{where}, question '{question.get('id', '?')}'"
                values = {
                    "id": str(question.get("id", "")),
                    "context": context,
                    "question": _text(path, question, "question", asked).strip(),
                    "title": str(article.get("title", "")),
                }
                impossible = bool(question.get("is_impossible"))
                gold = [] if impossible else [_answer(path, a, asked) for a in _list(path, question, "answers", asked)]
                add_question(rows, values, [answer for answer in gold if answer[0]], left_out)
    return rows


def _answer(path: Path, answer: Mapping[str, Any], where: str) -> tuple[str, int]:
    start = answer.get("answer_start", -1)
    return _text(path, answer, "text", where), start if isinstance(start, int) else -1


def read_mrqa(path: Path, left_out: Counter[str], most: int | None = None, ascii_only: bool = False) -> Columns:
    """The first questions of an MRQA file, at most so many; its first line is a header."""
    rows: Columns = {name: [] for name in QA_COLUMNS}
    seen = 0
    for number, record in read_jsonl(path):
        if "header" in record and "context" not in record:
            continue
        where = f"line {number}"
        original = _text(path, record, "context", where)
        context = printable_ascii(original) if ascii_only else original
        for question in _list(path, record, "qas", where):
            if seen == most:
                return rows
            seen += 1
            values = {
                "id": str(question.get("qid", "")),
                "context": context,
                "question": _text(path, question, "question", where).strip(),
            }
            spans = _list(path, question, "detected_answers", where)
            add_question(rows, values, list(_detected(path, spans, where, original, context)), left_out)
    return rows


def _detected(
    path: Path, spans: Iterable[Mapping[str, Any]], where: str, original: str, context: str
) -> Iterator[tuple[str, int]]:
    """Each detected answer and its earliest place, moved by what was taken out of the context before it."""
    for span in spans:
        said = span.get("char_spans")
        firsts = [ends[0] for ends in said if isinstance(ends, list) and ends] if isinstance(said, list) else []
        start = min((first for first in firsts if isinstance(first, int)), default=-1)
        moved = start if context is original or start < 0 else len(printable_ascii(original[:start]))
        text = _text(path, span, "text", where)
        if text:
            yield text, moved


def _list(path: Path, value: Any, name: str, where: str) -> list[dict[str, Any]]:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, list) or not all(isinstance(inner, dict) for inner in found):
        raise DataError(
            f"{path.name}, {where}: there is no list of objects '{name}'; expected the form of SQuAD or MRQA."
        )
    return found


def _text(path: Path, value: Mapping[str, Any], name: str, where: str) -> str:
    found = value.get(name)
    if not isinstance(found, str):
        raise DataError(f"{path.name}, {where}: '{name}' is {found!r}; expected a text, as SQuAD and MRQA have it.")
    return found
