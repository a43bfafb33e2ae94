"""Task formulations: from the columns of a corpus to features, a loss, predictions and metrics."""

from __future__ import annotations

from collections.abc import Callable

from motet.core.plugins import Registry
from motet.tasks.classification import classification
from motet.tasks.instruct import instruct
from motet.tasks.language_modeling import language_modeling
from motet.tasks.multi_label import multi_label
from motet.tasks.preference import preference
from motet.tasks.question_answering import qa
from motet.tasks.regression import regression
from motet.tasks.seq2seq import seq2seq
from motet.tasks.tagging import tagging
from motet.tasks.task import Task

TASKS: dict[str, Callable[..., Task]] = {
    "classification": classification,
    "multi_label": multi_label,
    "regression": regression,
    "tagging": tagging,
    "qa": qa,
    "seq2seq": seq2seq,
    "lm": language_modeling,
    "instruct": instruct,
    "preference": preference,
}
TASK_REGISTRY = Registry("motet.tasks", TASKS)

__all__ = [
    "TASKS",
    "TASK_REGISTRY",
    "Task",
    "classification",
    "instruct",
    "language_modeling",
    "multi_label",
    "preference",
    "qa",
    "regression",
    "seq2seq",
    "tagging",
]
