"""Infer the task of a table from its columns, if they leave no doubt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from motet.core.errors import DataError
from motet.datasets.columns import ListColumn
from motet.datasets.data_file import GROUP_COLUMNS
from motet.datasets.instruction_columns import INSTRUCTION_COLUMNS, INSTRUCTION_TASKS, derivable_columns
from motet.datasets.task_columns import TASK_COLUMNS, find_task_columns, required_columns

OPTIONAL_COLUMNS = ("starts",)


def infer_task(name: str, table: Mapping[str, Any], other_columns: Collection[str] = ()) -> tuple[str, str]:
    """Return the task and the reason. If several tasks are possible, or a column may be missing, raise an error."""
    columns, unclear = _name_columns(table)
    other_columns = [*unclear, *other_columns]
    available = {*columns, *derivable_columns(columns), *OPTIONAL_COLUMNS}
    candidates = [task for task in TASK_COLUMNS if available.issuperset(required_columns(task))]
    if len(candidates) > 1:
        candidates = [task for task in candidates if task != "lm"]
    if not candidates:
        raise DataError(missing_columns_message(name, [*columns, *other_columns]))
    if len(candidates) > 1:
        raise DataError(
            f"{name}: its columns {', '.join(columns)} fit several tasks ({', '.join(candidates)}). Set task.type to one "
            "of them."
        )
    (task,) = candidates
    if task == "instruct" and "label" in columns:
        raise DataError(
            f"{name}: with prompt and completion, its column 'label' would not be used. If it says whether the completion is "
            "good, keep the rows with good ones. Remove the column, or set task.type=instruct to ignore it."
        )
    if task not in INSTRUCTION_TASKS:
        other_columns = [*(column for column in columns if column in INSTRUCTION_COLUMNS), *other_columns]
        columns = [column for column in columns if column not in INSTRUCTION_COLUMNS]
    if task == "lm":
        names = [*columns, *other_columns]
        if unused := [column for column in names if column not in ("text", *GROUP_COLUMNS)]:
            raise DataError(
                f"{name}: its columns are {', '.join(names)}. With a text alone, the task would be language modeling; name "
                f"the column with the labels, for example data.label={unused[0] if len(unused) == 1 else '…'}, or set "
                "task.type=lm to ignore the other columns."
            )
    used = [c for c in columns if c in required_columns(task)] or [c for c in columns if c in INSTRUCTION_COLUMNS]
    return task, f"inferred from the column{'s' if len(used) > 1 else ''} {', '.join(used)}"


def unused_columns(task: str, columns: Collection[str]) -> list[str]:
    """Return Motet's columns in a table that the task does not read. Some partitions may use them."""
    names = find_task_columns(task, columns)
    used = {*names.required, *names.optional_inputs, *GROUP_COLUMNS}
    if task in INSTRUCTION_TASKS:
        used.update(INSTRUCTION_COLUMNS)
    if names.target not in columns:  # a column with this name stands for it
        used.add("label")
    return [column for column in columns if column not in used]


def _name_columns(table: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of the columns, and of those that leave a doubt.

    Lists of labels are the column `labels`, even if it is called `label`. A column `labels` without lists may hold one
    label or several.
    """
    columns: list[str] = []
    unclear: list[str] = []
    for name, values in table.items():
        if name in ("label", "labels") and _holds_lists(values):
            columns.append("labels")
        else:
            (unclear if name == "labels" else columns).append(name)
    return columns, unclear


def _holds_lists(values: Any) -> bool:
    return isinstance(values, ListColumn) or (isinstance(values, list) and isinstance(values[0], list | tuple))


def missing_columns_message(name: str, columns: Iterable[str]) -> str:
    """Explain which columns each task needs."""
    needs = "; ".join(f"{task} needs {', '.join(columns.required)}" for task, columns in TASK_COLUMNS.items())
    return (
        f"{name}: no task fits its columns {', '.join(columns)}; {needs}. "
        "Name the columns, for example data.text=… data.label=…"
    )
