"""Convert raw column values to the types that each task needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from motet.core.errors import DataError
from motet.datasets.corpus import TASK_COLUMNS
from motet.datasets.squad_json import find_answers


def infer_task(columns: Mapping[str, Any]) -> str | None:
    """Return the task that uses the most of these columns, or None if no task has all it needs."""
    candidates = [task for task, names in TASK_COLUMNS.items() if all(n in columns or n == "starts" for n in names)]
    return max(candidates, key=lambda task: len(TASK_COLUMNS[task]), default=None)


def cast_columns(name: str, task: str, columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Convert every value to the type of its column; an error names the row of `name` that does not fit."""
    result: dict[str, list[Any]] = {}
    for column, values in columns.items():
        convert = _CONVERTERS.get(column, str)
        result[column] = [_convert(convert, name, row, column, value) for row, value in enumerate(values)]
    if task == "qa":
        result |= _align_answers(name, result)
    return result


def _convert(convert: Callable[[Any], Any], name: str, row: int, column: str, value: Any) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError, KeyError):
        problem = f"column '{column}' holds {str(value)[:60]!r}; expected {_EXPECTED.get(column, 'text')}"
        raise DataError(f"{name}, row {row}: {problem}. Fix or remove the row.") from None


def _to_list(value: Any) -> list[str]:
    """A list stays a list; a string is split at whitespace."""
    return [str(v) for v in value] if isinstance(value, list | tuple) else str(value).split()


def _to_answers(value: Any) -> Any:
    """Accept a list of answers, one answer, or the hub's SQuAD format: {"text": [...], "answer_start": [...]}."""
    if isinstance(value, Mapping):
        return {"text": [str(t) for t in value["text"]], "answer_start": [int(s) for s in value["answer_start"]]}
    if isinstance(value, list | tuple):
        return [str(v) for v in value]
    return [str(value)] if str(value).strip() else []


def _to_starts(value: Any) -> list[int]:
    return [int(v) for v in (value if isinstance(value, list | tuple) else str(value).split())]


def _to_label(value: Any) -> str:
    if not str(value).strip():
        raise ValueError("empty label")
    return str(value)


_EXPECTED = {"label": "a label", "score": "a number", "words": "a list of words", "tags": "a list of tags"}
_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "label": _to_label,
    "score": float,
    "words": _to_list,
    "tags": _to_list,
    "answers": _to_answers,
    "starts": _to_starts,
}


def _align_answers(name: str, columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Find each answer in its context. An answer without a start position gets its first occurrence."""
    answers: list[list[str]] = []
    starts: list[list[int]] = []
    for row, (context, value) in enumerate(zip(columns["context"], columns["answers"], strict=True)):
        if isinstance(value, Mapping):
            candidates = list(zip(value["text"], value["answer_start"], strict=True))
        else:
            positions = columns["starts"][row] if "starts" in columns else []
            candidates = [(text, positions[i] if i < len(positions) else -1) for i, text in enumerate(value)]
        row_answers, row_starts = find_answers(context, candidates)
        if candidates and not row_answers:
            raise DataError(
                f"{name}, row {row}: answer '{candidates[0][0][:40]}' is not in its context. Fix or remove the row."
            )
        answers.append(row_answers)
        starts.append(row_starts)
    return {"answers": answers, "starts": starts}
