"""Corpora from the command line: build a store, look into one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.corpus_readers import CORPUS_READERS
from motet.datasets.fednlp_data_file import write_fednlp_file
from motet.datasets.hdf5_store import write_store
from motet.datasets.load_corpus import BUILTIN_CORPORA, DataConfig, load_corpus
from motet.experiment.recipe.config_parsing import instantiate, look_up
from motet.experiment.recipe.recipe_files import parse_overrides

LAYOUTS = {"motet": write_store, "fednlp": write_fednlp_file}


def build_store(name: str, source: Path | None, to: Path, layout: str, settings: Sequence[str]) -> str:
    """Read a corpus and write it; what was written, in a sentence."""
    write = look_up(LAYOUTS, layout, "--layout")
    if to.suffix not in (".h5", ".hdf5"):
        raise ConfigError(f"--to: '{to.name}' should end in .h5, so that it is known for what it is.")
    given = parse_overrides(settings)
    if odd := [section for section in given if section not in ("data", "task")]:
        raise ConfigError(f"--set: '{odd[0]}' has no part in reading a corpus; data.… and task.type have.")
    known = name in BUILTIN_CORPORA or name in CORPUS_READERS
    where = {"name": name} if known or not Path(name).exists() else {"path": name}
    if source is not None:
        where["path"] = str(source)
    choice = instantiate(DataConfig, {**given.get("data", {}), **where}, "data")
    corpus = load_corpus(choice, Seed(0), given.get("task", {}).get("type"))
    to.parent.mkdir(parents=True, exist_ok=True)
    write(corpus, to)
    held, size = len(corpus) - corpus.num_train, to.stat().st_size / 1e6
    return (
        f"{to}: {corpus.name}, {corpus.task}, {corpus.num_train:,} rows to train and {held:,} to test, {size:.1f} MB."
    )


def describe_corpus(path: Path) -> str:
    corpus = load_corpus(DataConfig(path=str(path)), Seed(0))
    lines = [f"{corpus.name} ({corpus.source})", f"task     {corpus.task}"]
    lines.append(f"rows     {corpus.num_train:,} to train, {len(corpus) - corpus.num_train:,} to test")
    lines += [f"{name:8} {_column(corpus, name)}" for name in corpus.columns]
    lines.append("")
    for row in range(min(3, len(corpus))):
        lines += [f"  {name}: {_short(column[row])}" for name, column in corpus.columns.items()]
        lines.append("")
    return "\n".join(lines).rstrip()


def _column(corpus: Corpus, name: str) -> str:
    values = corpus.columns[name]
    first = values[0]
    if isinstance(first, str):
        counts = Counter(values)
        if len(counts) <= 30 or name in ("client", "domain", "label"):
            most = ", ".join(f"{v} {n:,}" for v, n in counts.most_common(6))
            return f"{len(counts):,} different: {most}{', …' if len(counts) > 6 else ''}"
        lengths = np.array([len(v) for v in values])
        return f"text, {lengths.mean():.0f} characters on average, {lengths.max():,} at most, {int((lengths == 0).sum()):,} empty"
    if isinstance(first, list):
        sizes = np.array([len(v) for v in values])
        return f"lists of {sizes.mean():.1f} on average, {sizes.max():,} at most"
    numbers = np.asarray(values, np.float64)
    return f"numbers from {numbers.min():g} to {numbers.max():g}, {numbers.mean():g} on average"


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 100 else f"{text[:97]}…"
