"""Convert raw values to the types that each task needs. A value that does not fit is an error, never converted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from motet.core.errors import DataError
from motet.datasets.categories import cast_categories
from motet.datasets.columns import ListColumn, TextColumn
from motet.datasets.conll import TaggedSentence, to_bio_columns
from motet.datasets.data_file import GROUP_COLUMNS
from motet.datasets.instruction_checks import check_messages
from motet.datasets.instruction_columns import (
    INSTRUCTION_COLUMNS,
    INSTRUCTION_CONVERTERS,
    INSTRUCTION_TASKS,
    build_prompts,
)
from motet.datasets.raw_table import RawTable, RowPositions
from motet.datasets.read_log import ReadLog
from motet.datasets.squad_json import find_answers
from motet.datasets.task_columns import LIST_COLUMNS, find_task_columns


def cast_columns(
    table: RawTable, task: str, log: ReadLog, num_train: int, repair_tags: bool = False
) -> dict[str, Sequence[Any]]:
    """Convert every column to its type. An error names the file and the line of a value that does not fit.

    The first `num_train` rows are for training. Other rows need no client and no domain.
    """
    columns: dict[str, Any] = {}
    for name, values in _label_as_target(table.columns, task).items():
        if name in INSTRUCTION_COLUMNS:
            if task in INSTRUCTION_TASKS:
                columns[name] = _cast_instructions(name, values, table.positions, log)
        elif name == "label":
            columns[name] = cast_categories(name, values, table.positions, log, table.num_rows)
        elif name in GROUP_COLUMNS:
            columns[name] = cast_categories(name, values, table.positions, log, num_train)
        else:
            if name == "score":
                _warn_of_thousands(values, log)
            cast: Callable[[str, Any, RowPositions], Any] = _CASTS.get(name, _cast_texts)
            columns[name] = cast(name, values, table.positions)
    if task == "tagging" and "words" in columns and "tags" in columns:
        columns |= _cast_sentences(columns, table.positions, log, repair_tags)
    if task == "qa" and "answers" in columns and "context" in columns:
        columns |= _align_answers(columns, table.positions, log)
    if task in INSTRUCTION_TASKS:
        return build_prompts(task, columns, table.positions.describe, log)
    return columns


def _label_as_target(columns: Mapping[str, Any], task: str) -> Mapping[str, Any]:
    """Rename the column `label` to what the task predicts for a text, if there is no column of that name."""
    names = find_task_columns(task, columns)
    if "text" not in names.inputs or names.target in (None, *columns):
        return columns
    return {str(names.target) if name == "label" else name: values for name, values in columns.items()}


def value_error(positions: RowPositions, row: int, column: str, value: Any, expected: str) -> DataError:
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}…"
    return DataError(
        f"{positions.describe(row)}: column '{column}' holds {shown}; expected {expected}. Fix or remove the row."
    )


def _cast_texts(name: str, values: Any, positions: RowPositions) -> Sequence[str]:
    """Texts stay as they are. Bytes must be UTF-8."""
    if isinstance(values, TextColumn):
        return values  # type: ignore[return-value]
    texts = []
    for row, value in enumerate(_to_python(values)):
        if isinstance(value, list | tuple):
            raise value_error(positions, row, name, value, f"one text, not a list of {len(value)}")
        if isinstance(value, dict) and value:
            raise value_error(
                positions, row, name, value, f"one text; name a field of it, such as COLUMN.{next(iter(value))}"
            )
        try:
            texts.append(value.decode() if isinstance(value, bytes) else value)
        except UnicodeDecodeError:
            raise value_error(positions, row, name, value, "text in UTF-8") from None
        if not isinstance(texts[-1], str):
            raise value_error(positions, row, name, value, "text")
    return texts


def _to_python(values: Any) -> Iterable[Any]:
    return list(values.tolist()) if isinstance(values, np.ndarray) else iter(values)


def _cast_numbers(name: str, values: Any, positions: RowPositions) -> Sequence[float]:
    numbers = []
    for row, value in enumerate(_to_python(values)):
        try:
            number = math.nan if isinstance(value, bool) or "_" in str(value) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise value_error(positions, row, name, value, "a number, such as 1234.5 (without a comma or a unit)")
        numbers.append(number)
    return numbers


def _warn_of_thousands(values: Any, log: ReadLog) -> None:
    """Write a warning about 1.234 next to 900: in many countries, this point separates the thousands."""
    if not isinstance(values, TextColumn):
        return
    fractions = [text for text in map(str.strip, values) if "." in text]
    if fractions and len(fractions) < len(values) and all(map(_THOUSANDS.fullmatch, fractions)):
        log.warn(
            f"{len(fractions):,} of {len(values):,} scores are numbers such as {fractions[0]}, which are read with a decimal "
            "point. If the point separates thousands, remove it."
        )


def _cast_lists(name: str, values: Any, positions: RowPositions) -> Sequence[list[str]]:
    """Lists of strings stay lists; a string is split at the separator of the column."""
    if isinstance(values, ListColumn):
        return values  # type: ignore[return-value]
    separator, lists = LIST_COLUMNS[name], []
    for row, value in enumerate(_to_python(values)):
        elements = _split_list(value, separator) if isinstance(value, str) else value
        if separator is not None and isinstance(elements, list | tuple):  # names, which may be numbers
            if _is_vector(elements):
                expected = "each label once: names or numbers, not a vector of 0 and 1"
                raise value_error(positions, row, name, value, expected)
            elements = [str(element) if _is_integer(element) else element for element in elements]
        if not isinstance(elements, list | tuple) or not all(isinstance(element, str) for element in elements):
            between = "blanks" if separator is None else f"'{separator}'"
            raise value_error(positions, row, name, value, f"a list of strings, or a text with {between} between them")
        lists.append(list(elements))
    return lists


def _is_vector(elements: Sequence[Any]) -> bool:
    """True for numbers of which one repeats, as in [0, 1, 0], and for the same in a text: "0,1,0" and "0 1 0"."""
    names = elements[0].split() if len(elements) == 1 and isinstance(elements[0], str) else list(map(str, elements))
    are_flags = any(map(_is_integer, elements)) or {"0", "1"}.issuperset(names)
    return are_flags and len(set(names)) < len(names)


def _split_list(text: str, separator: str | None) -> Any:
    """Return the elements of a text: separated, or a list as in JSON or as Python prints it. None: another notation."""
    text = text.strip()
    is_list = text[:2] in _QUOTED_LISTS or (separator is not None and text[:1] + text[-1:] == "[]")
    if not is_list:
        return [element.strip() for element in text.split(separator) if element.strip()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return re.findall("'([^']*)'", text) if _PYTHON_LIST.fullmatch(text) else None


def _cast_answers(name: str, values: Any, positions: RowPositions) -> list[Any]:
    """Accept a list of answers, one answer, or SQuAD's format: {"text": [...], "answer_start": [...]}."""
    answers = []
    for row, value in enumerate(_to_python(values)):
        texts = value.get("text") if isinstance(value, Mapping) else value
        if isinstance(texts, str):
            texts = [texts] if texts.strip() else []
        starts = value.get("answer_start") if isinstance(value, Mapping) else None
        has_starts = isinstance(starts, list | tuple) and all(_is_integer(start) for start in starts)
        if (
            not isinstance(texts, list | tuple)
            or not all(isinstance(text, str) for text in texts)
            or (isinstance(value, Mapping) and (not has_starts or len(starts or ()) != len(texts)))
        ):
            raise value_error(positions, row, name, value, "a list of answers")
        answers.append(list(zip(texts, starts, strict=True)) if has_starts and starts is not None else list(texts))
    return answers


def _cast_starts(name: str, values: Any, positions: RowPositions) -> list[list[int]]:
    result = []
    for row, value in enumerate(_to_python(values)):
        starts = value.split() if isinstance(value, str) else [value] if _is_integer(value) else value
        try:
            result.append([int(start) for start in starts])
        except (TypeError, ValueError):
            raise value_error(positions, row, name, value, "a list of whole numbers") from None
    return result


def _cast_instructions(name: str, values: Any, positions: RowPositions, log: ReadLog) -> list[Any]:
    convert, expected = INSTRUCTION_CONVERTERS[name]
    if isinstance(values, list):  # texts are in a compact column
        check_messages(values, log)
    result = []
    for row, value in enumerate(_to_python(values)):
        try:
            result.append(convert(value))
        except (TypeError, ValueError, KeyError, AttributeError):
            raise value_error(positions, row, name, value, expected) from None
    return result


_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+")
_QUOTED_LISTS = tuple(bracket + quote for bracket in "[({" for quote in "'\"")
_PYTHON_LIST = re.compile(r"\['[^'\\]*'(, '[^'\\]*')*\]")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_CASTS: dict[str, Callable[[str, Any, RowPositions], Any]] = {
    "score": _cast_numbers,
    **dict.fromkeys(LIST_COLUMNS, _cast_lists),
    "answers": _cast_answers,
    "starts": _cast_starts,
}


def _cast_sentences(
    columns: Mapping[str, Any], positions: RowPositions, log: ReadLog, repair: bool
) -> dict[str, list[Any]]:
    """Check that every word has a tag, and convert the tags to BIO."""
    sentences = []
    for row, (words, tags) in enumerate(zip(columns["words"], columns["tags"], strict=True)):
        if len(words) != len(tags):
            raise DataError(
                f"{positions.describe(row)}: {len(words)} words have {len(tags)} tags; each word needs one. Fix or "
                "remove the row."
            )
        sentences.append(TaggedSentence(words, tags, [row] * len(words)))
    return to_bio_columns(positions.describe, sentences, log, repair)


def _align_answers(columns: Mapping[str, Any], positions: RowPositions, log: ReadLog) -> dict[str, list[Any]]:
    """Find each answer in its context. An answer without a start position gets its first occurrence."""
    answers: list[list[str]] = []
    starts: list[list[int]] = []
    for row, (context, values) in enumerate(zip(columns["context"], columns["answers"], strict=True)):
        given = columns["starts"][row] if "starts" in columns else []
        if given and len(given) != len(values):
            raise DataError(f"{positions.describe(row)}: {len(values)} answers have {len(given)} starts. Fix the row.")
        candidates = [
            value if isinstance(value, tuple) else (value, given[i] if given else -1) for i, value in enumerate(values)
        ]
        row_answers, row_starts = find_answers(context, candidates, log)
        if candidates and not row_answers:
            raise DataError(
                f"{positions.describe(row)}: answer '{candidates[0][0][:40]}' is not in its context. Fix or remove the "
                "row."
            )
        answers.append(row_answers)
        starts.append(row_starts)
    return {"answers": answers, "starts": starts}
