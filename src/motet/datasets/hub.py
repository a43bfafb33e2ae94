"""Load any dataset of the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError, DataError, first_line
from motet.core.install_hint import install_command
from motet.datasets.arrow_files import add_record_batches
from motet.datasets.column_names import optional_groups
from motet.datasets.corpus import Corpus
from motet.datasets.data_file import DataFile, ReadOptions
from motet.datasets.local_files import convert_table
from motet.datasets.raw_table import TableBuilder
from motet.datasets.read_log import ReadLog
from motet.datasets.splits import split_rows
from motet.hub_access import hub_access


def load_from_hub(name: str, options: ReadOptions, test_share: float) -> Corpus:
    """Load a dataset by name, with its configuration after a colon: `glue:mrpc`.

    The test set is the split `test`, or `validation` if `test` has no labels. If there is neither, a share of the
    training rows is held out.
    """
    dataset = _load_dataset(name)
    if "train" not in dataset:
        raise DataError(f"{name}: there is no split 'train'; the splits are {', '.join(dataset)}.")
    test_split = next((s for s in ("test", "validation") if s in dataset and _has_labels(dataset[s], options)), None)
    log = ReadLog(Path(name), origin="Hugging Face hub")
    builder = TableBuilder()
    num_train = 0
    for split in ("train", test_split) if test_split else ("train",):
        _add_split(name, split, dataset[split], options, builder, log)
        num_train = num_train or builder.num_rows
    log.note("The splits are train and " + (test_split or "a share of its rows") + ".")
    task, columns = convert_table(name, builder, options, log, num_train)
    report = log.build_report(builder.num_rows)
    if test_split is None:
        return split_rows(name, task, columns, test_share, report)
    return Corpus(name, task, columns, num_train, report)


def _add_split(name: str, split: str, dataset: Any, options: ReadOptions, builder: TableBuilder, log: ReadLog) -> None:
    file = DataFile(Path(f"{name}:{split}"), options, log, {} if split == "train" else optional_groups(builder))
    table = dataset.with_format("arrow")
    batches = (batch for rows in table.iter(1 << 14) for batch in rows.to_batches())
    builder.start_file(f"{name}, split {split}", "row", file.constants)
    add_record_batches(file, builder, dataset.features.arrow_schema, batches)


def _load_dataset(name: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"data.name: '{name}' is not one of Motet's corpora, and the hub needs the package datasets. "
            f"Run: {install_command('hub')}, or set a file with data.path=…"
        ) from None
    path, _, configuration = name.partition(":")
    try:
        with hub_access():
            return datasets.load_dataset(path, configuration or None)
    except Exception as error:  # any exception of the network libraries that datasets uses
        raise ConfigError(
            f"data.name: '{name}' could not be loaded from the hub ({first_line(error)}). Check the name and the "
            "network connection, or set a file with data.path=…"
        ) from None


def _has_labels(dataset: Any, options: ReadOptions) -> bool:
    """False for a test set with hidden labels, which the hub marks with -1."""
    column = options.column_names.get("label") or "label"
    return column not in dataset.column_names or not len(dataset) or dataset[0][column] not in (-1, None)
