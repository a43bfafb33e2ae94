"""Tables in memory as corpora: pandas and polars DataFrames, and Hugging Face Datasets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError, DataError, first_line
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import DataConfig, load_corpus
from motet.datasets.python_errors import explain_in_python


def _write_pandas(frame: Any, path: Path) -> None:
    """Write a DataFrame. An index with names was made from columns, by set_index or groupby, and becomes columns again."""
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    frame.to_parquet(path.with_suffix(".parquet"), index=False)


_WRITERS: dict[str, Callable[[Any, Path], Any]] = {
    "pandas": _write_pandas,
    "polars": lambda table, path: table.write_parquet(path.with_suffix(".parquet")),
    "datasets": lambda table, path: table.save_to_disk(str(path)),
}


TABLES = ("DataFrame", "Dataset", "DatasetDict")


def load_table(table: Any, config: DataConfig, seed: Seed, task: str | None = None) -> Corpus:
    """Build a corpus from a table in memory. It gets the same split as the same rows in a file."""
    write = _WRITERS.get(type(table).__module__.partition(".")[0])
    kind = type(table).__name__
    if write is None or kind not in TABLES:
        raise ConfigError(
            f"load: the data is a {kind}; expected the name of a corpus, a pandas or polars DataFrame, or "
            "a Hugging Face Dataset. To read a file: motet.load(path=…)"
        )
    with tempfile.TemporaryDirectory(prefix="motet-table-") as folder, explain_in_python(kind):
        try:
            write(table, Path(folder) / kind)
        except (ValueError, TypeError) as error:  # Arrow's errors are among them
            raise DataError(
                f"load: the {kind} cannot be converted to Arrow ({first_line(error)}); give every column a name that is "
                "text, and values of one type."
            ) from None
        (path,) = Path(folder).iterdir()
        corpus = load_corpus(replace(config, path=str(path)), seed, task)
    return replace(corpus, name=kind)
