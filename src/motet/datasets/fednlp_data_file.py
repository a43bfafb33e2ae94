"""Read and write FedNLP's HDF5 data files.

Every text is one HDF5 dataset (`X/<i>`, `Y/<i>`). Everything else is JSON in `attributes`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from motet.atomic_files import replace_when_complete
from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.hdf5_access import open_hdf5, probe_hdf5
from motet.datasets.read_log import ReadLog

TASK_TYPES = {
    "classification": "text_classification",
    "tagging": "seq_tagging",
    "qa": "span_extraction",
    "seq2seq": "seq2seq",
    "lm": "lm",
}
FEDNLP_TASK_REASON = "the task_type of the FedNLP file"
GROUP_SIZE = 1_000_000  # large language-modeling files hold row i in X_<i // GROUP_SIZE>/X/<i>
_ATTRIBUTE_COLUMNS = {
    "label_index_list": "domain",
    "movie": "client",
    "characters": "speaker",
    "source_list": "source",
    "doc_index": "doc",
}


def is_fednlp_file(path: Path) -> bool:
    return probe_hdf5(path, lambda file: "attributes" in list(file))  # a list, because `in` follows links


def read_fednlp_file(path: Path) -> Corpus:
    log = ReadLog(path)
    log.add_file(path)
    log.task_reason = FEDNLP_TASK_REASON
    with open_hdf5(path, "Use the data file that FedNLP published.") as file:
        attributes = json.loads(_read_text(file["attributes"]))
        tasks = {task_type: task for task, task_type in TASK_TYPES.items()}
        task = tasks.get(attributes.get("task_type", ""))
        if task is None:
            raise DataError(
                f"{path.name}: task_type is '{attributes.get('task_type')}'; expected one of {', '.join(tasks)}."
            )
        train, test = _read_splits(attributes, path)
        columns = _READERS[task](file, train + test)
        for attribute, name in _ATTRIBUTE_COLUMNS.items():
            values = attributes.get(attribute)
            if isinstance(values, list) and len(values) == len(next(iter(columns.values()))) and name not in columns:
                columns[name] = [str(v) for v in values]
    return Corpus(path.stem, task, columns, len(train), log.build_report(len(train) + len(test)))


def write_fednlp_file(corpus: Corpus, path: Path) -> None:
    """Write a corpus in FedNLP's layout. The file appears under its name only when it is complete."""
    if corpus.task not in TASK_TYPES or "second" in corpus.columns:
        raise DataError(
            f"{corpus.name}: FedNLP's layout does not support {corpus.task} of this form. Use Motet's own format."
        )
    size = len(corpus)
    attributes: dict[str, Any] = {
        "index_list": list(range(size)),
        "train_index_list": list(range(corpus.num_train)),
        "test_index_list": list(range(corpus.num_train, size)),
        "task_type": TASK_TYPES[corpus.task],
    }
    if corpus.task in ("classification", "tagging"):
        labels = (
            corpus.labels
            if corpus.task == "classification"
            else tuple(sorted({tag for tags in corpus.column("tags") for tag in tags}))
        )
        attributes |= {"label_vocab": {label: i for i, label in enumerate(labels)}, "num_labels": len(labels)}
    if "domain" in corpus.columns:
        attributes["label_index_list"] = list(corpus.columns["domain"])
    with replace_when_complete(path) as partial_path, h5py.File(partial_path, "w") as file:
        file["attributes"] = json.dumps(attributes)
        for group, column in _fednlp_columns(corpus):
            for i, value in enumerate(column):
                file[f"{group}/{i}"] = value


def _fednlp_columns(corpus: Corpus) -> Iterable[tuple[str, Iterable[Any]]]:
    """Return FedNLP's groups and their values."""
    column = corpus.column
    match corpus.task:
        case "classification":
            return [("X", column("text")), ("Y", column("label"))]
        case "seq2seq":
            return [("X", column("source")), ("Y", column("target"))]
        case "tagging":
            return [("X", map(_to_string_array, column("words"))), ("Y", map(_to_string_array, column("tags")))]
        case "lm":
            return [("X", column("text"))]
    spans = [
        (starts[0], starts[0] + len(answers[0])) if answers else (0, 0)
        for answers, starts in zip(column("answers"), column("starts"), strict=True)
    ]
    texts = [answers[0] if answers else "" for answers in column("answers")]
    ids = corpus.columns.get("id") or [str(i) for i in range(len(corpus))]
    return [
        ("context_X", column("context")),
        ("question_X", column("question")),
        ("Y", spans),
        ("Y_answer", texts),
        ("question_ids", ids),
    ]


def _to_string_array(values: Iterable[str]) -> np.ndarray:
    return np.array(list(values), dtype=h5py.string_dtype())


def _read_splits(attributes: dict[str, Any], path: Path) -> tuple[list[int], list[int]]:
    """Return the numbers of the training and test rows; without split lists, the last fifth is the test set."""
    train, test = attributes.get("train_index_list"), attributes.get("test_index_list")
    if train is not None and test is not None:
        return [int(i) for i in train], [int(i) for i in test]
    rows = attributes.get("index_list")
    if rows is None:
        raise DataError(
            f"{path.name}: its attributes have no index_list; expected FedNLP's train_index_list and test_index_list."
        )
    cut = round(0.8 * len(rows))
    return [int(i) for i in rows[:cut]], [int(i) for i in rows[cut:]]


def _read_column(file: h5py.File, group: str, rows: list[int], read: Callable[[Any], Any]) -> list[Any]:
    return [read(file[f"{group}/{i}"]) for i in rows]


def _read_classification(file: h5py.File, rows: list[int]) -> dict[str, list[Any]]:
    return {"text": _read_column(file, "X", rows, _read_text), "label": _read_column(file, "Y", rows, _read_text)}


def _read_seq2seq(file: h5py.File, rows: list[int]) -> dict[str, list[Any]]:
    return {"source": _read_column(file, "X", rows, _read_text), "target": _read_column(file, "Y", rows, _read_text)}


def _read_tagging(file: h5py.File, rows: list[int]) -> dict[str, list[Any]]:
    return {"words": _read_column(file, "X", rows, _read_list), "tags": _read_column(file, "Y", rows, _read_list)}


def _read_lm(file: h5py.File, rows: list[int]) -> dict[str, list[Any]]:
    if "X" in file:
        return {"text": _read_column(file, "X", rows, _read_text)}
    return {"text": [_read_text(file[f"X_{i // GROUP_SIZE}/X/{i}"]) for i in rows]}


def _read_qa(file: h5py.File, rows: list[int]) -> dict[str, list[Any]]:
    contexts = _read_column(file, "context_X", rows, _read_text)
    questions = _read_column(file, "question_X", rows, _read_text)
    answers, starts = [], []
    for i, context in zip(rows, contexts, strict=True):
        start, end = (int(v) for v in file[f"Y/{i}"][()][:2])
        text = context[start:end]
        answers.append([text] if text else [])
        starts.append([start] if text else [])
    return {"context": contexts, "question": questions, "answers": answers, "starts": starts}


def _read_text(dataset: h5py.Dataset) -> str:
    value = dataset[()]
    return value.decode() if isinstance(value, bytes) else str(value)


def _read_list(dataset: h5py.Dataset) -> list[str]:
    return [value.decode() if isinstance(value, bytes) else str(value) for value in dataset[()]]


_READERS: dict[str, Callable[[h5py.File, list[int]], dict[str, list[Any]]]] = {
    "classification": _read_classification,
    "tagging": _read_tagging,
    "qa": _read_qa,
    "seq2seq": _read_seq2seq,
    "lm": _read_lm,
}
