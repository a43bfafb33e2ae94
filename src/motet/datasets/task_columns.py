"""The columns of each task.

`client`, `domain` and any other column are optional; they can define the clients.

| task | columns |
| --- | --- |
| classification | text, label; for text pairs also second |
| multi_label | text, labels (list of str, may be empty); for text pairs also second |
| regression | text, score (a number); for text pairs also second |
| tagging | words (list of str), tags (list of str of the same length: B-X, I-X, O) |
| qa | context, question, answers (list of str, empty if unanswerable), starts (offset of each answer in the context) |
| seq2seq | source, target |
| lm | text |
| instruct | prompt (text, or a list of turns with their `roles`), completion; optional closed (bool), choices (list of str) |
| preference | prompt, chosen, rejected |
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskColumns:
    """What a model reads, what it should predict (None: nothing else), and other columns."""

    inputs: tuple[str, ...]
    target: str | None = None
    others: tuple[str, ...] = ()
    optional_inputs: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        return (*self.inputs, *([self.target] if self.target else []), *self.others)


TASK_COLUMNS: dict[str, TaskColumns] = {
    "classification": TaskColumns(("text",), "label", optional_inputs=("second",)),
    "multi_label": TaskColumns(("text",), "labels", optional_inputs=("second",)),
    "regression": TaskColumns(("text",), "score", optional_inputs=("second",)),
    "tagging": TaskColumns(("words",), "tags"),
    "qa": TaskColumns(("context", "question"), "answers", others=("starts",)),
    "seq2seq": TaskColumns(("source",), "target"),
    "lm": TaskColumns(("text",)),
    "instruct": TaskColumns(("prompt",), "completion"),
    "preference": TaskColumns(("prompt", "chosen", "rejected")),  # a prompt may have many pairs
}
# Columns of lists, and what separates the elements if a row has a string instead. None: blanks.
LIST_COLUMNS: dict[str, str | None] = {"words": None, "tags": None, "labels": ","}


def required_columns(task: str) -> tuple[str, ...]:
    """Return the columns that a task needs. A task of another package checks its columns itself."""
    return TASK_COLUMNS[task].required if task in TASK_COLUMNS else ()


def find_task_columns(task: str, available: Collection[str]) -> TaskColumns:
    """Return the columns of a task. A task of another package has those of the first task of Motet that they fit."""
    if task in TASK_COLUMNS:
        return TASK_COLUMNS[task]
    fitting = (columns for columns in TASK_COLUMNS.values() if set(columns.required) <= set(available))
    return next(fitting, TaskColumns(tuple(available)))
