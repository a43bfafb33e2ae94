"""Guess which columns of a table hold the texts, the labels and the clients. A guess is only ever proposed."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from motet.datasets.inspection.table_preview import Preview

# Names that people give to Motet's columns, the most telling first.
USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "text": (
        "text", "sentence", "body", "content", "review", "message", "comment", "tweet", "document", "post", "utterance",
        "reviewtext", "review_body", "review_text", "note", "report", "abstract", "description", "title",
    ),
    "label": (
        "label", "labels", "class", "category", "topic", "sentiment", "intent", "target", "gold", "verdict", "polarity",
        "diagnosis", "quality", "rating", "stars", "y",
    ),
    "score": ("score", "similarity", "relevance"),
    "client": (
        "client", "client_id", "user", "user_id", "author", "author_id", "speaker", "owner", "site", "hospital",
        "institution", "patient", "patient_id", "subject_id", "username", "reviewerid",
    ),
    "context": ("context", "passage", "paragraph", "document", "review"),
    "question": ("question", "query"),
    "answers": ("answers", "answer", "answer_text", "human_ans_spans"),
    "source": ("source", "article", "document", "src", "dialogue"),
    "target": ("target", "summary", "highlights", "headline", "tgt", "subject"),
    "words": ("words", "tokens"),
    "tags": ("tags", "ner_tags", "ner", "labels"),
    "starts": ("starts", "answer_start", "answer_starts"),
    "messages": ("messages", "conversations", "conversation"),
    "instruction": ("instruction",),
    "input": ("input", "context"),
    "output": ("output", "response", "answer", "completion"),
    "prompt": ("prompt", "question", "query"),
    "completion": ("completion", "response", "answer"),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
}  # fmt: skip
PAIRS = (
    ("premise", "hypothesis"), ("sentence1", "sentence2"), ("question1", "question2"), ("text1", "text2"),
    ("text_a", "text_b"), ("sentence", "question"), ("#1 string", "#2 string"),
)  # fmt: skip
# Tasks by their columns, the most specific first.
COLUMN_SETS = (
    ("context", "question", "answers"), ("words", "tags"), ("source", "target"), ("prompt", "chosen", "rejected"),
    ("messages",), ("instruction", "output"),
)  # fmt: skip
LAST_SETS = (("prompt", "completion"),)  # if there are no labels
OPTIONAL_COLUMNS = {"answers": "starts", "output": "input"}  # what a table may also have
MIN_TEXT_LENGTH = 20  # characters on average
MIN_DISTINCT_TEXTS = 0.5  # of the rows
MAX_LABELS, MIN_ROWS_PER_LABEL = 100, 2
MIN_ROWS = 10  # fewer rows may all have different labels


@dataclass(frozen=True)
class ColumnGuess:
    """Motet's columns and the columns of the file that they are probably called."""

    columns: Mapping[str, str]

    @property
    def overrides(self) -> list[str]:
        """The settings of a recipe that name the columns."""
        top_level = ("text", "label", "client")
        return [
            f"data.{name}={_quote(column)}" if name in top_level else f"data.columns.{name}={_quote(column)}"
            for name, column in self.columns.items()
        ]


def _quote(column: str) -> str:
    """Quote names that YAML would not read as they are, such as '#1 String'."""
    return column if re.fullmatch(r"[\w.-]+", column) else json.dumps(column, ensure_ascii=False)


def guess_columns(preview: Preview) -> ColumnGuess | None:
    """Return a guess, or None if the columns leave too much doubt."""
    by_lower_case = {name.rpartition(".")[2].lower(): name for name in reversed(preview)}  # without the object it is in
    by_lower_case |= {name.lower(): name for name in preview}
    guess = _find_set(COLUMN_SETS, by_lower_case)
    if guess is not None:
        return guess
    for first, second in PAIRS:
        if first in by_lower_case and second in by_lower_case:
            columns = {"text": by_lower_case[first], "second": by_lower_case[second]}
            return _add_label_and_client(columns, preview, by_lower_case)
    text = _find_by_name("text", by_lower_case) or _find_longest(preview)
    guess = None if text is None else _add_label_and_client({"text": text}, preview, by_lower_case)
    return guess or _find_set(LAST_SETS, by_lower_case)


def _find_set(sets: Sequence[Sequence[str]], by_lower_case: Mapping[str, str]) -> ColumnGuess | None:
    """Return the first set of columns that the table has under usual names."""
    for names in sets:
        optional = [OPTIONAL_COLUMNS[name] for name in names if name in OPTIONAL_COLUMNS]
        matches = {name: _find_by_name(name, by_lower_case) for name in (*names, *optional)}
        columns = {name: column for name, column in matches.items() if column}
        if columns.keys() >= set(names) and len(set(columns.values())) == len(columns):
            return ColumnGuess(columns)
    return None


def _add_label_and_client(
    columns: dict[str, str], preview: Preview, by_lower_case: Mapping[str, str]
) -> ColumnGuess | None:
    client = _find_by_name("client", by_lower_case)
    used = [*columns.values(), *([client] if client else [])]
    unused = {key: name for key, name in by_lower_case.items() if name not in used}
    label = _find_by_name("label", {key: name for key, name in unused.items() if _is_repeated(preview[name])})
    score = _find_by_name("score", by_lower_case) if label is None else None
    label = label or (None if score else _find_label(preview, used))
    others = {"label": label, "score": score, "client": client}
    if label is None and score is None:
        return None
    return ColumnGuess({**columns, **{name: column for name, column in others.items() if column}})


def _find_by_name(name: str, by_lower_case: Mapping[str, str]) -> str | None:
    return next((by_lower_case[usual] for usual in USUAL_NAMES[name] if usual in by_lower_case), None)


def _find_longest(preview: Preview) -> str | None:
    """Return the column with the longest texts, if most of them differ."""
    lengths = {
        name: sum(map(len, values)) / len(values)
        for name, values in preview.items()
        if len(set(values)) >= MIN_DISTINCT_TEXTS * len(values)
    }
    longest = max(lengths, key=lengths.__getitem__, default=None)
    return longest if longest is not None and lengths[longest] >= MIN_TEXT_LENGTH else None


def _find_label(preview: Preview, used: Collection[str]) -> str | None:
    """Return the column with the fewest values that are repeated; None if there is none."""
    candidates = [name for name, values in preview.items() if name not in used and _is_categorical(values)]
    return min(candidates, key=lambda name: len(set(preview[name])), default=None)


def _is_repeated(values: Sequence[str]) -> bool:
    """False for an identifier: a different value in every row. A few rows say nothing."""
    return len(values) < MIN_ROWS or len(set(values)) < len(values)


def _is_categorical(values: Sequence[str]) -> bool:
    distinct = len(set(values))
    return 2 <= distinct <= min(MAX_LABELS, len(values) // MIN_ROWS_PER_LABEL)
