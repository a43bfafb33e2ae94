"""`motet data build` and `motet data show`: write a corpus to one file, and describe one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.fednlp_data_file import write_fednlp_file
from motet.datasets.hdf5_store import write_store
from motet.datasets.inspection.check_corpus import ShowInspection, check_corpus
from motet.datasets.load_corpus import DataConfig, load_corpus
from motet.experiment.recipe.config_parsing import look_up
from motet.experiment.recipe.corpus_source import CorpusSource, parse_sections

LAYOUTS = {"motet": write_store, "fednlp": write_fednlp_file}
CATEGORICAL_COLUMNS = ("client", "domain", "label")
MAX_CATEGORIES, MAX_EXAMPLES, MAX_CHARACTERS = 30, 3, 100


def build_store(
    name: str,
    source: Path | None,
    to: Path,
    layout: str,
    overrides: Sequence[str],
    on_inspection: ShowInspection | None = None,
) -> str:
    """Read a corpus, inspect it, and write it to an HDF5 file. Return a description of the file."""
    write = look_up(LAYOUTS, layout, "--layout")
    require_hdf5_name(to)
    corpus_source = read_source(name, source, overrides)
    corpus = corpus_source.load()
    check_corpus(corpus, corpus_source.config, on_inspection=on_inspection)
    to.parent.mkdir(parents=True, exist_ok=True)
    write(corpus, to)
    return f"{to}: {corpus.name}, {corpus.task}, {_count_rows(corpus)}, {to.stat().st_size / 1e6:.1f} MB."


def require_hdf5_name(to: Path) -> None:
    """Raise an error if a file does not have the name of an HDF5 file."""
    if to.suffix not in (".h5", ".hdf5"):
        raise ConfigError(f"--to: '{to.name}' must end in .h5 or .hdf5.")


def read_source(name: str, path: Path | None, overrides: Sequence[str]) -> CorpusSource:
    """Return the source of a corpus from a name or a path, and settings from the command line."""
    return CorpusSource.from_settings(
        name, path, parse_sections(overrides, ("data", "task"), "has no effect on a corpus")
    )


def describe_corpus(path: Path) -> str:
    """Describe a corpus: its task, rows and columns, and a few examples."""
    corpus = load_corpus(DataConfig(path=str(path)), Seed(0))
    lines = [f"{corpus.name} ({corpus.report.summary})", f"task     {corpus.task}", f"rows     {_count_rows(corpus)}"]
    lines += [f"{name:8} {_describe_column(corpus, name)}" for name in corpus.columns]
    lines.append("")
    for row in range(min(MAX_EXAMPLES, len(corpus))):
        lines += [f"  {name}: {_shorten(column[row])}" for name, column in corpus.columns.items()]
        lines.append("")
    return "\n".join(lines).rstrip()


def _count_rows(corpus: Corpus) -> str:
    return f"{corpus.num_train:,} training rows and {len(corpus) - corpus.num_train:,} test rows"


def _describe_column(corpus: Corpus, name: str) -> str:
    values = corpus.columns[name]
    if isinstance(values[0], str):
        counts = Counter(values)
        if len(counts) <= MAX_CATEGORIES or name in CATEGORICAL_COLUMNS:
            frequent = ", ".join(f"{value} {count:,}" for value, count in counts.most_common(6))
            return f"{len(counts):,} different: {frequent}{', …' if len(counts) > 6 else ''}"
        lengths = np.array([len(value) for value in values])
        empty = int((lengths == 0).sum())
        return f"text, {lengths.mean():.0f} characters on average, {lengths.max():,} at most, {empty:,} empty"
    if isinstance(values[0], list):
        sizes = np.array([len(value) for value in values])
        return f"lists of {sizes.mean():.1f} on average, {sizes.max():,} at most"
    numbers = np.asarray(values, np.float64)
    return f"numbers from {numbers.min():g} to {numbers.max():g}, {numbers.mean():g} on average"


def _shorten(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 3]}…"
