"""FedNLP's own HDF5 layout, read and written, so that data published for it work here.

One dataset a text (`X/<i>`, `Y/<i>`), the rest as JSON in `attributes`. Rows are numbered, training rows first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus

TASK_TYPES = {
    "classification": "text_classification",
    "tagging": "seq_tagging",
    "qa": "span_extraction",
    "seq2seq": "seq2seq",
    "lm": "lm",
}
GROUP_SIZE = 1_000_000  # of a large language-model file: X_<g>/X/<i>
_FACTORS = {
    "label_index_list": "domain",
    "movie": "client",
    "characters": "speaker",
    "source_list": "source",
    "doc_index": "doc",
}


def is_fednlp_file(path: Path) -> bool:
    if not h5py.is_hdf5(path):
        return False
    with h5py.File(path, "r") as file:
        return "attributes" in file


def read_fednlp_file(path: Path) -> Corpus:
    with h5py.File(path, "r") as file:
        told = json.loads(_text(file["attributes"]))
        kinds = {theirs: ours for ours, theirs in TASK_TYPES.items()}
        task = kinds.get(told.get("task_type", ""))
        if task is None:
            raise DataError(f"{path.name}: task_type is '{told.get('task_type')}'; expected one of {', '.join(kinds)}.")
        rows = _rows(told, path)
        read = {"classification": _labelled, "tagging": _tagged, "qa": _asked, "seq2seq": _written, "lm": _plain}[task]
        columns = read(file, rows[0] + rows[1])
        for theirs, ours in _FACTORS.items():
            values = told.get(theirs)
            if isinstance(values, list) and len(values) == len(columns[next(iter(columns))]) and ours not in columns:
                columns[ours] = [str(v) for v in values]
    return Corpus(path.stem, task, columns, len(rows[0]), f"FedNLP file {path.name}")


def write_fednlp_file(corpus: Corpus, path: Path) -> None:
    if corpus.task not in TASK_TYPES or "second" in corpus.columns:
        raise DataError(
            f"{corpus.name}: FedNLP's layout has no place for {corpus.task} of this form; use Motet's own store."
        )
    size = len(corpus)
    told: dict[str, Any] = {
        "index_list": list(range(size)),
        "train_index_list": list(range(corpus.num_train)),
        "test_index_list": list(range(corpus.num_train, size)),
        "task_type": TASK_TYPES[corpus.task],
    }
    if corpus.task in ("classification", "tagging"):
        labels = (
            corpus.labels
            if corpus.task == "classification"
            else tuple(sorted({t for row in corpus.column("tags") for t in row}))
        )
        told |= {"label_vocab": {label: i for i, label in enumerate(labels)}, "num_labels": len(labels)}
    if "domain" in corpus.columns:
        told["label_index_list"] = list(corpus.columns["domain"])
    beside = path.with_name(f".{path.name}.part")
    with h5py.File(beside, "w") as file:
        file["attributes"] = json.dumps(told)
        for group, column in _groups(corpus):
            for i, value in enumerate(column):
                file[f"{group}/{i}"] = value
    beside.replace(path)


def _groups(corpus: Corpus) -> Iterable[tuple[str, Iterable[Any]]]:
    column = corpus.column
    match corpus.task:
        case "classification":
            return [("X", column("text")), ("Y", column("label"))]
        case "seq2seq":
            return [("X", column("source")), ("Y", column("target"))]
        case "tagging":
            return [("X", map(_words, column("words"))), ("Y", map(_words, column("tags")))]
        case "lm":
            return [("X", column("text"))]
    spans = [
        (s[0], s[0] + len(a[0])) if a else (0, 0) for a, s in zip(column("answers"), column("starts"), strict=True)
    ]
    texts = [a[0] if a else "" for a in column("answers")]
    ids = corpus.columns.get("id") or [str(i) for i in range(len(corpus))]
    return [
        ("context_X", column("context")), ("question_X", column("question")),
        ("Y", spans), ("Y_answer", texts), ("question_ids", ids),
    ]  # fmt: skip


def _words(values: Iterable[str]) -> np.ndarray:
    return np.array(list(values), dtype=h5py.string_dtype())


def _rows(told: dict[str, Any], path: Path) -> tuple[list[int], list[int]]:
    """By number: HDF5 lists keys as text, so that 10 would come before 2."""
    train, test = told.get("train_index_list"), told.get("test_index_list")
    if train is not None and test is not None:
        return [int(i) for i in train], [int(i) for i in test]
    every = told.get("index_list")
    if every is None:
        raise DataError(
            f"{path.name}: its attributes name no index_list; expected FedNLP's train_index_list and test_index_list."
        )
    cut = round(0.8 * len(every))
    return [int(i) for i in every[:cut]], [int(i) for i in every[cut:]]


def _column(file: h5py.File, group: str, rows: list[int], read: Callable[[Any], Any]) -> list[Any]:
    return [read(file[f"{group}/{i}"]) for i in rows]


def _labelled(file: h5py.File, rows: list[int]) -> dict[str, list[Any]]:
    return {"text": _column(file, "X", rows, _text), "label": _column(file, "Y", rows, _text)}


def _written(file: h5py.File, rows: list[int]) -> dict[str, list[Any]]:
    return {"source": _column(file, "X", rows, _text), "target": _column(file, "Y", rows, _text)}


def _tagged(file: h5py.File, rows: list[int]) -> dict[str, list[Any]]:
    def listed(value: h5py.Dataset) -> list[str]:
        return [v.decode() if isinstance(v, bytes) else str(v) for v in value[()]]

    return {"words": _column(file, "X", rows, listed), "tags": _column(file, "Y", rows, listed)}


def _plain(file: h5py.File, rows: list[int]) -> dict[str, list[Any]]:
    if "X" in file:
        return {"text": _column(file, "X", rows, _text)}
    return {"text": [_text(file[f"X_{i // GROUP_SIZE}/X/{i}"]) for i in rows]}


def _asked(file: h5py.File, rows: list[int]) -> dict[str, list[Any]]:
    contexts, questions = _column(file, "context_X", rows, _text), _column(file, "question_X", rows, _text)
    answers, starts = [], []
    for i, context in zip(rows, contexts, strict=True):
        first, last = (int(v) for v in file[f"Y/{i}"][()][:2])
        text = context[first:last]
        answers.append([text] if text else [])
        starts.append([first] if text else [])
    return {"context": contexts, "question": questions, "answers": answers, "starts": starts}


def _text(value: h5py.Dataset) -> str:
    found = value[()]
    return found.decode() if isinstance(found, bytes) else str(found)
