"""Tables in memory as corpora: pandas and polars DataFrames, and Hugging Face Datasets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import DataConfig, load_corpus

_WRITERS: dict[str, Callable[[Any, Path], Path]] = {
    "pandas": lambda table, folder: _write_pandas(table, folder / "table.parquet"),
    "polars": lambda table, folder: _write_polars(table, folder / "table.parquet"),
    "datasets": lambda table, folder: _write_dataset(table, folder / "dataset"),
}


def load_table(table: Any, config: DataConfig, seed: Seed) -> Corpus:
    """Build a corpus from a table in memory. It gets the same split as the same rows in a file."""
    write = _WRITERS.get(type(table).__module__.partition(".")[0])
    if write is None:
        raise ConfigError(
            f"load: the data is a {type(table).__name__}; expected the name of a corpus, a pandas or polars DataFrame, or "
            "a Hugging Face Dataset. To read a file: motet.load(path=…)"
        )
    with tempfile.TemporaryDirectory(prefix="motet-table-") as folder:
        path = write(table, Path(folder))
        corpus = load_corpus(replace(config, path=str(path)), seed)
    return replace(corpus, name=type(table).__name__)


def _write_pandas(table: Any, path: Path) -> Path:
    table.to_parquet(path, index=False)
    return path


def _write_polars(table: Any, path: Path) -> Path:
    table.write_parquet(path)
    return path


def _write_dataset(table: Any, path: Path) -> Path:
    table.save_to_disk(str(path))
    return path
