"""Load any dataset of the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motet.core.errors import ConfigError, DataError, first_line
from motet.datasets.column_types import cast_columns, infer_task
from motet.datasets.corpus import Corpus, join_splits, split_corpus
from motet.datasets.local_files import missing_columns_message
from motet.datasets.read_report import ReadReport


def load_from_hub(name: str, column_names: Mapping[str, str | None], task: str | None, test_share: float) -> Corpus:
    """Load a dataset by name, with its configuration after a colon: `glue:mrpc`.

    The test set is the split `test`, or `validation` if `test` has no labels. If there is neither, a share of the
    training rows is held out.
    """
    dataset = _load_dataset(name)
    origin = "Hugging Face hub"
    if "train" not in dataset:
        raise DataError(f"{name}: there is no split 'train'; the splits are {', '.join(dataset)}.")
    train = _read_columns(name, dataset["train"], column_names)
    task = task or infer_task(train)
    if task is None:
        raise DataError(missing_columns_message(name, dataset["train"].column_names))
    train = cast_columns(name, task, train)
    test_split = next(
        (s for s in ("test", "validation") if s in dataset and _has_labels(dataset[s], column_names)), None
    )
    if test_split is None:
        return split_corpus(name, task, train, test_share, ReadReport(origin=origin, num_rows=len(dataset["train"])))
    test = cast_columns(name, task, _read_columns(name, dataset[test_split], column_names))
    report = ReadReport(origin=origin, num_rows=len(dataset["train"]) + len(dataset[test_split]))
    return join_splits(name, task, train, test, report)


def _load_dataset(name: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"data.name: '{name}' is not one of Motet's corpora, and the hub needs the package datasets. "
            "Run: pip install 'motet[hub]', or give a file with data.path=…"
        ) from None
    path, _, configuration = name.partition(":")
    try:
        return datasets.load_dataset(path, configuration or None)
    except Exception as error:  # any exception of the network libraries that datasets uses
        raise ConfigError(
            f"data.name: '{name}' could not be loaded from the hub ({first_line(error)}). Check the name and the "
            "network connection, or give a file with data.path=…"
        ) from None


def _read_columns(name: str, table: Any, column_names: Mapping[str, str | None]) -> dict[str, list[Any]]:
    columns = {}
    for column, hub_name in column_names.items():
        source = hub_name or column
        if source in table.column_names:
            class_names = getattr(table.features.get(source), "names", None)  # of a ClassLabel
            columns[column] = [class_names[v] if class_names else v for v in table[source]]
        elif hub_name is not None:
            raise DataError(
                f"{name}: there is no column '{source}'; the columns are {', '.join(table.column_names)}. "
                f"Set data.{column}=…"
            )
    return columns


def _has_labels(table: Any, column_names: Mapping[str, str | None]) -> bool:
    """False for a test set with hidden labels, which the hub marks with -1."""
    column = column_names.get("label") or "label"
    return column not in table.column_names or not len(table) or table[0][column] not in (-1, None)
