"""Read question answering files: SQuAD's JSON (1.1 and 2.0) and MRQA's JSON Lines."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from motet.core.errors import DataError
from motet.datasets.original_files import read_json, read_jsonl
from motet.datasets.read_log import ReadLog
from motet.datasets.splits import Columns

QA_COLUMNS = ("id", "context", "question", "answers", "starts")
MOVED_ANSWERS = "answers moved to the nearest occurrence"
UNCLEAR_MOVES = "answers moved to the nearest of several occurrences (positions count characters, not bytes)"
UNCLEAR_STARTS = (
    "answers without a position that occur several times: the first is taken (data.columns.starts names positions)"
)
LOST_ANSWERS = "answers removed because they are not in the context"
EMPTY_ANSWERS = "answers removed because they are empty, or because their question is unanswerable"
ANSWER_NOT_IN_CONTEXT = "questions whose answer is not in the context"
_UNPRINTABLE = dict.fromkeys(set(range(128)) - {ord(c) for c in string.printable})


def printable_ascii(text: str) -> str:
    """Remove all characters that are not printable ASCII."""
    return text.encode("ascii", "ignore").decode("ascii").translate(_UNPRINTABLE)


def find_answer(context: str, answer: str, start: int) -> int:
    """Return the occurrence of the answer that is nearest to `start`, or -1; a negative `start` means the first."""
    if start < 0:
        return context.find(answer)
    before = context.rfind(answer, 0, start + len(answer))  # the last occurrence that starts at or before `start`
    after = context.find(answer, start)
    if before < 0 or after < 0:
        return max(before, after)
    return before if start - before <= after - start else after


def find_answers(context: str, answers: Iterable[tuple[str, int]], log: ReadLog) -> tuple[list[str], list[int]]:
    """Return the distinct answers that occur in the context, and where they start. Count corrections in the log."""
    starts: dict[str, int] = {}
    lost: set[str] = set()
    for answer, expected_start in answers:
        start = find_answer(context, answer, expected_start)
        if start < 0:
            lost.add(answer)
        elif answer not in starts:
            starts[answer] = start
            if start != expected_start and context.count(answer) > 1:
                log.change(UNCLEAR_STARTS if expected_start < 0 else UNCLEAR_MOVES)
            else:
                log.change(MOVED_ANSWERS, count=0 <= expected_start != start)
    if starts:  # a question without any answer is dropped or rejected as a whole
        log.change(LOST_ANSWERS, len(lost))
    return list(starts), list(starts.values())


def add_question(
    columns: Columns, values: Mapping[str, Any], answers: list[tuple[str, int]], log: ReadLog, path: Path
) -> None:
    """Append a question, or drop it if it has answers and none of them is in the context."""
    texts, starts = find_answers(values["context"], answers, log)
    if answers and not texts:
        log.drop(ANSWER_NOT_IN_CONTEXT, path, f"question '{values['id']}'")
        return
    for name, value in {**values, "answers": texts, "starts": starts}.items():
        columns.setdefault(name, []).append(value)


def read_squad(path: Path, log: ReadLog) -> Columns:
    """Read a SQuAD file. Unanswerable questions have no answers; `title` is the article."""
    return parse_squad(path, read_json(path, log), log)


def parse_squad(path: Path, squad: Any, log: ReadLog) -> Columns:
    """Return the questions of a SQuAD file that was parsed as JSON."""
    columns: Columns = {name: [] for name in (*QA_COLUMNS, "title")}
    for number, article in enumerate(_get_list(path, squad, "data", "the file"), 1):
        place = f"article {number}"
        for paragraph in _get_list(path, article, "paragraphs", place):
            context = _get_text(path, paragraph, "context", place)
            for question in _get_list(path, paragraph, "qas", place):
                question_place = f"{place}, question '{question.get('id', '?')}'"
                values = {
                    "id": str(question.get("id", "")),
                    "context": context,
                    "question": _get_text(path, question, "question", question_place).strip(),
                    "title": str(article.get("title", "")),
                }
                add_question(columns, values, _squad_answers(path, question, question_place, log), log, path)
    return columns


def _squad_answers(path: Path, question: Mapping[str, Any], place: str, log: ReadLog) -> list[tuple[str, int]]:
    """Return the texts and start positions of the nonempty answers."""
    is_impossible = question.get("is_impossible", False)
    if is_impossible not in (True, False):
        raise DataError(f"{path.name}, {place}: 'is_impossible' is {is_impossible!r}; expected true or false.")
    answers = []
    for answer in _get_list(path, question, "answers", place) if "answers" in question or not is_impossible else ():
        start = answer.get("answer_start", -1)
        if type(start) is not int:
            raise DataError(f"{path.name}, {place}: 'answer_start' is {start!r}; expected a whole number.")
        answers.append((_get_text(path, answer, "text", place), start))
    filled = [(text, start) for text, start in answers if text and not is_impossible]
    log.change(EMPTY_ANSWERS, len(answers) - len(filled))
    return filled


def read_mrqa(path: Path, log: ReadLog, limit: int | None = None, ascii_only: bool = False) -> Columns:
    """Read the first `limit` questions of an MRQA file, whose first line is a header."""
    columns: Columns = {name: [] for name in QA_COLUMNS}
    count = 0
    for number, record in read_jsonl(path, log):
        if "header" in record and "context" not in record:
            continue
        place = f"line {number}"
        original = _get_text(path, record, "context", place)
        context = printable_ascii(original) if ascii_only else original
        for question in _get_list(path, record, "qas", place):
            if count == limit:
                return columns
            count += 1
            values = {
                "id": str(question.get("qid", "")),
                "context": context,
                "question": _get_text(path, question, "question", place).strip(),
            }
            spans = _get_list(path, question, "detected_answers", place)
            add_question(columns, values, list(_mrqa_answers(path, spans, place, original, context)), log, path)
    return columns


def _mrqa_answers(
    path: Path, spans: Iterable[Mapping[str, Any]], place: str, original: str, context: str
) -> Iterator[tuple[str, int]]:
    """Yield each detected answer and its first position, corrected for the characters removed from the context."""
    for span in spans:
        char_spans = span.get("char_spans")
        starts = [s[0] for s in char_spans if isinstance(s, list) and s] if isinstance(char_spans, list) else []
        start = min((s for s in starts if isinstance(s, int)), default=-1)
        if context is not original and start >= 0:
            start = len(printable_ascii(original[:start]))
        text = _get_text(path, span, "text", place)
        if text:
            yield text, start


def _get_list(path: Path, value: Any, name: str, place: str) -> list[dict[str, Any]]:
    entries = value.get(name) if isinstance(value, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(
            f"{path.name}, {place}: there is no list of objects '{name}'; expected the SQuAD or MRQA format."
        )
    return entries


def _get_text(path: Path, value: Mapping[str, Any], name: str, place: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise DataError(f"{path.name}, {place}: '{name}' is {text!r}; expected a string, as in SQuAD and MRQA.")
    return text
