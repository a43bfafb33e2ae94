"""A corpus by name or by path."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from motet.core.errors import ConfigError, did_you_mean
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus, split_corpus
from motet.datasets.corpus_readers import CORPUS_READERS
from motet.datasets.hub import load_from_hub
from motet.datasets.local_files import LOCAL_SUFFIXES, load_local_corpus
from motet.datasets.movie_reviews import movie_reviews
from motet.datasets.toy_corpora import (
    toy_classification,
    toy_lm,
    toy_pairs,
    toy_qa,
    toy_regression,
    toy_seq2seq,
    toy_tagging,
)

# Corpora that need no files: made here, or carried by a package.
BUILTIN_CORPORA: dict[str, Callable[[], Corpus]] = {
    "movie-reviews": movie_reviews,
    "toy-classification": toy_classification,
    "toy-pairs": toy_pairs,
    "toy-regression": toy_regression,
    "toy-tagging": toy_tagging,
    "toy-qa": toy_qa,
    "toy-seq2seq": toy_seq2seq,
    "toy-lm": toy_lm,
}
COLUMN_NAMES = (
    "text",
    "second",
    "label",
    "score",
    "words",
    "tags",
    "context",
    "question",
    "answers",
    "starts",
    "source",
    "target",
)


@dataclass(frozen=True)
class DataConfig:
    """Which corpus, what its columns are called, and how much of it.

    `name` alone: a corpus of ours, or of the hub. `name` with `path`: a published corpus, whose original files are in that
    folder. `path` alone: your own data.
    """

    name: str | None = None
    path: str | None = None
    test: str | None = None  # a second file with the test rows; without it a share of the first becomes the test set
    text: str | None = None
    label: str | None = None
    client: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)  # other columns: {context: passage, answers: gold}
    test_share: float = 0.2
    resplit: bool = False  # forget which rows the corpus tests on: throw all together and cut off test_share anew
    limit: int | None = None
    test_limit: int | None = None
    public_share: float = (
        0.0  # of every client's training rows: texts that all may read, without labels, for distillation
    )
    dev_share: float = 0.0  # of the training rows: put aside, to choose the best round by

    def __post_init__(self) -> None:
        for name in ("limit", "test_limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"data.{name} is {value}; it must be at least 1, or left out for all rows.")
        if not 0 < self.test_share < 1:
            raise ConfigError(f"data.test_share is {self.test_share}; it is a share of the rows, above 0 and below 1.")
        for name in ("public_share", "dev_share"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ConfigError(f"data.{name} is {value}; it is a share of the rows, 0 or more and below 1.")
        known = (*COLUMN_NAMES, "domain", "client")
        if odd := next((c for c in self.columns if c not in known), None):
            raise ConfigError(
                f"data.columns: Motet has no column '{odd}'; it has {', '.join(known)}.{did_you_mean(odd, known)}"
            )


def load_corpus(choice: DataConfig, seed: Seed, task: str | None = None) -> Corpus:
    """The corpus a recipe names, or as much of it as it wants. `task` is the recipe's formulation, if it names one."""
    if choice.name is None and choice.path is None:
        raise ConfigError(
            "data: give data.name (a corpus by name), data.path (your own file), or both (a corpus's own files)."
        )
    return read_corpus(choice, task).sample(choice.limit, choice.test_limit, seed.derive("data").numpy())


def read_corpus(choice: DataConfig, task: str | None = None) -> Corpus:
    """The whole corpus, however much of it a recipe wants."""
    corpus = _named(choice, task) if choice.name is not None else _own(choice, task)
    if choice.resplit:
        return split_corpus(corpus.name, corpus.task, corpus.columns, choice.test_share, corpus.source)
    return corpus


def _named(choice: DataConfig, task: str | None) -> Corpus:
    name = choice.name or ""
    if name in CORPUS_READERS:
        return CORPUS_READERS[name](_home(name, choice.path))
    known = [*BUILTIN_CORPORA, *CORPUS_READERS]
    if name not in BUILTIN_CORPORA and did_you_mean(name, known) and "/" not in name and ":" not in name:
        raise ConfigError(
            f"data.name: there is no corpus '{name}'.{did_you_mean(name, known)} See: motet list datasets"
        )
    if Path(name).suffix.lower() in LOCAL_SUFFIXES and name not in BUILTIN_CORPORA:
        raise ConfigError(f"data.name is '{name}', a file; files of your own go into data.path (path=… in Python).")
    if choice.path is not None:
        raise ConfigError(
            f"data.path is '{choice.path}', but data.name is '{name}', a corpus that is not read from there; for your own file "
            "say data.name=null too."
        )
    if name in BUILTIN_CORPORA:
        return BUILTIN_CORPORA[name]()
    return load_from_hub(name, _names(choice), task, choice.test_share)


def _home(name: str, given: str | None) -> Path:
    """Where a corpus's original files are: data.path, or a folder of its name under $MOTET_DATA, data/ or .data/."""
    if given is not None:
        return Path(given)
    base = name.partition("-")[0] if name.startswith("glue-") else name
    places = [
        Path(p) / n
        for p in (os.environ.get("MOTET_DATA"), "data", ".data")
        if p
        for n in (name, base, base.replace("-", "_"))
    ]
    found = next((p for p in places if p.is_dir()), None)
    if found is None:
        looked = ", ".join(dict.fromkeys(str(p) for p in places))
        raise ConfigError(
            f"data.name: the files of '{name}' are not here (looked in {looked}); put them there, or say in a recipe "
            "where they are: data.path=…"
        )
    return found


def _own(choice: DataConfig, task: str | None) -> Corpus:
    test = None if choice.test is None else Path(choice.test)
    return load_local_corpus(Path(choice.path or ""), test, _names(choice), task, choice.test_share)


def _names(choice: DataConfig) -> dict[str, str | None]:
    given = {"text": choice.text, "label": choice.label, "client": choice.client, **choice.columns}
    return {ours: given.get(ours) for ours in (*COLUMN_NAMES, "domain", "client")}
