"""Columns that Motet does not read although they change what the other columns mean."""

from __future__ import annotations

from collections.abc import Collection

from motet.datasets.instruction_columns import INSTRUCTION_TASKS
from motet.datasets.read_log import ReadLog

PRODIGY_COLUMNS = ("_task_hash", "answer")
SPLIT_COLUMNS = ("split", "data_split", "set", "fold", "partition", "is_train", "is_test")
CONTEXT_COLUMNS = ("system", "system_prompt", "history", "tools")  # of a conversation


def warn_of_unread_columns(task: str, unread: Collection[str], log: ReadLog, *, has_test_rows: bool) -> None:
    """Write a warning about columns that say how rows are split, whether they are good, or what a model reads, too."""
    if all(name in unread for name in PRODIGY_COLUMNS):
        log.warn(
            "The column 'answer', in which Prodigy writes accept, reject or ignore, is not read. Keep only rows with accept."
        )
    if not has_test_rows and (splits := _select(unread, SPLIT_COLUMNS)):
        log.warn(
            f"These columns are not read: {splits}. If one names the test rows, write these rows to a file of their own, and "
            "set data.test. Otherwise, Motet draws the test rows at random."
        )
    if task in INSTRUCTION_TASKS and (context := _select(unread, CONTEXT_COLUMNS)):
        log.warn(
            f"These columns are not read, so the model does not see them: {context}. Write them into the prompt, or as the "
            "first messages of the conversation."
        )


def _select(unread: Collection[str], names: Collection[str]) -> str:
    """Return the unread columns with these names, in any case."""
    return ", ".join(f"'{name}'" for name in unread if name.lower() in names)
