"""Values as a formulation wants them: what a file holds as text may mean a list, a number or an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from motet.core.errors import DataError
from motet.datasets.corpus import TASK_COLUMNS
from motet.datasets.squad_json import find_answers


def infer_task(columns: Mapping[str, Any]) -> str | None:
    """The formulation whose columns these are; the one that needs most of them."""
    fitting = [t for t, needed in TASK_COLUMNS.items() if all(c in columns or c == "starts" for c in needed)]
    return max(fitting, key=lambda t: len(TASK_COLUMNS[t]), default=None)


def cast_columns(name: str, task: str, columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns of a task with values of the right kind; what does not fit is named with its row."""
    found: dict[str, list[Any]] = {}
    for column, values in columns.items():
        make = _KINDS.get(column, str)
        found[column] = [_made(make, name, row, column, value) for row, value in enumerate(values)]
    if task == "qa":
        found |= _answers(name, found, columns)
    return found


def _made(make: Callable[[Any], Any], name: str, row: int, column: str, value: Any) -> Any:
    try:
        return make(value)
    except (TypeError, ValueError, KeyError):
        told = f"column '{column}' holds {str(value)[:60]!r}; expected {_WANTED.get(column, 'text')}"
        raise DataError(f"{name}, row {row}: {told}. Mend or drop the row.") from None


def _listed(value: Any) -> list[str]:
    """A list, or words with blanks between them."""
    return [str(v) for v in value] if isinstance(value, list | tuple) else str(value).split()


def _texts(value: Any) -> Any:
    """A list of answers, one answer, or the form of the hub's SQuAD: {"text": [...], "answer_start": [...]}."""
    if isinstance(value, Mapping):
        return {"text": [str(t) for t in value["text"]], "answer_start": [int(s) for s in value["answer_start"]]}
    if isinstance(value, list | tuple):
        return [str(v) for v in value]
    return [str(value)] if str(value).strip() else []


def _label(value: Any) -> str:
    if not str(value).strip():
        raise ValueError("an empty label")
    return str(value)


_WANTED = {"label": "a label", "score": "a number", "words": "a list of words", "tags": "a list of tags"}
_KINDS: dict[str, Callable[[Any], Any]] = {
    "label": _label,
    "score": float,
    "words": _listed,
    "tags": _listed,
    "answers": _texts,
    "starts": lambda value: [int(v) for v in (value if isinstance(value, list | tuple) else str(value).split())],
}


def _answers(name: str, found: Mapping[str, list[Any]], given: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Answers where they stand; one whose place is not given stands where it first occurs."""
    texts: list[list[str]] = []
    starts: list[list[int]] = []
    for row, (context, value) in enumerate(zip(found["context"], found["answers"], strict=True)):
        if isinstance(value, Mapping):
            pairs = list(zip(value["text"], value["answer_start"], strict=True))
        else:
            places = found["starts"][row] if "starts" in given else []
            pairs = [(text, places[i] if i < len(places) else -1) for i, text in enumerate(value)]
        kept, where = find_answers(context, pairs)
        if pairs and not kept:
            raise DataError(
                f"{name}, row {row}: answer '{pairs[0][0][:40]}' does not occur in its passage; mend or drop the row."
            )
        texts.append(kept)
        starts.append(where)
    return {"answers": texts, "starts": starts}
