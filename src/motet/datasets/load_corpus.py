"""Load a corpus by name or by path."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from motet.core.errors import ConfigError
from motet.core.plugins import Registry
from motet.core.rng import Seed
from motet.core.suggestions import did_you_mean
from motet.datasets.compression import ARCHIVE_SUFFIXES, strip_compression_suffix
from motet.datasets.corpus import OWN_DATA_SPLIT, Corpus
from motet.datasets.corpus_readers import CORPUS_READERS
from motet.datasets.data_file import ReadOptions
from motet.datasets.file_formats import LOCAL_SUFFIXES
from motet.datasets.hub import load_from_hub
from motet.datasets.inspection.findings import MISTAKE_KINDS
from motet.datasets.instruction_columns import INSTRUCTION_COLUMNS
from motet.datasets.local_files import load_local_corpus
from motet.datasets.movie_reviews import movie_reviews
from motet.datasets.ner_corpora import NER_READERS
from motet.datasets.splits import split_rows
from motet.datasets.task_columns import TASK_COLUMNS
from motet.datasets.toy_corpora import (
    toy_classification,
    toy_instruct,
    toy_lm,
    toy_pairs,
    toy_preference,
    toy_qa,
    toy_regression,
    toy_seq2seq,
    toy_tagging,
)
from motet.missing_paths import describe_missing, is_hub_name, is_path

# Corpora that need no files: generated, or part of a package.
BUILTIN_CORPORA: dict[str, Callable[[], Corpus]] = {
    "movie-reviews": movie_reviews,
    "toy-classification": toy_classification,
    "toy-pairs": toy_pairs,
    "toy-regression": toy_regression,
    "toy-tagging": toy_tagging,
    "toy-qa": toy_qa,
    "toy-seq2seq": toy_seq2seq,
    "toy-lm": toy_lm,
    "toy-instruct": toy_instruct,
    "toy-preference": toy_preference,
}
DATASET_REGISTRY = Registry("motet.datasets", {**BUILTIN_CORPORA, **CORPUS_READERS})
_TASK_COLUMN_NAMES = (name for task in TASK_COLUMNS.values() for name in (*task.required, *task.optional_inputs))
COLUMN_NAMES = tuple(dict.fromkeys([*_TASK_COLUMN_NAMES, "domain", "client", *INSTRUCTION_COLUMNS]))


@dataclass(frozen=True)
class DataConfig:
    """The section `data` of a recipe: which corpus, what its columns are called, and how much of it to use.

    `name` alone: one of Motet's corpora, or a dataset of the hub. `name` and `path`: a published corpus, and the folder
    with its original files. `path` alone: your own data.
    """

    name: str | None = None  # a corpus of `motet list datasets`, or a dataset on the hub
    path: str | None = None  # your own file or folder
    test: str | None = None  # a second file with the test rows; without it, test_share of the first is held out
    text: str | None = None  # the column of the texts; null: a column with a usual name: text, sentence, ...
    label: str | None = None  # the column of the labels; null: a column with a usual name: label, class, ...
    client: str | None = None  # the column that names the client of each row
    columns: Mapping[str, str] = field(default_factory=dict)  # other columns: {context: passage, answers: gold}
    files: str | None = None  # pattern for the files of a folder, such as '*.csv'
    encoding: str | None = None  # encoding of text files; None: UTF-8, else a guess, which the report names
    delimiter: str | None = None  # character between the columns of .csv files; None: determined from the header
    quoting: Literal["auto", "csv", "none"] = "auto"  # whether quotes enclose fields; auto: in .csv, not in .tsv files
    header: bool | None = None  # whether the first row has column names; None: yes, unless columns are named by number
    sheet: str | None = None  # the sheet of an Excel workbook
    repair: Literal["bio"] | None = None  # bio: turn I- tags that do not continue an entity into B- tags
    test_share: float = 0.2  # share of the rows held out as a test set, if the corpus has none; 0: for motet join only
    resplit: bool = False  # ignore the corpus's own test set, and hold out test_share of all rows
    limit: int | None = None  # number of training rows to sample; None: all
    test_limit: int | None = None  # number of test rows to sample; null: all
    public_share: float = 0.0  # share of each client's training rows that everyone may read, without labels
    dev_share: float = 0.0  # share of the training rows held out to select the best round
    accept: tuple[str, ...] = ()  # findings of the inspection that do not stop a run: leak, labels, columns, empty, …

    def __post_init__(self) -> None:
        for name in ("limit", "test_limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"data.{name} is {value}; it must be at least 1. Leave it out to use all rows.")
        for name in ("test_share", "public_share", "dev_share"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ConfigError(f"data.{name} is {value}; expected a share of the rows from 0 to below 1.")
        if unknown := next((kind for kind in self.accept if kind not in MISTAKE_KINDS), None):
            raise ConfigError(
                f"data.accept has '{unknown}'; expected some of {', '.join(MISTAKE_KINDS)}."
                f"{did_you_mean(unknown, MISTAKE_KINDS)}"
            )
        if unknown := next((c for c in self.columns if c not in COLUMN_NAMES), None):
            raise ConfigError(
                f"data.columns: there is no column '{unknown}'; Motet's columns are {', '.join(COLUMN_NAMES)}."
                f"{did_you_mean(unknown, COLUMN_NAMES)}"
            )

    @property
    def read_options(self) -> ReadOptions:
        """The options for reading the user's own files."""
        return ReadOptions(
            column_names=self.column_names,
            encoding=self.encoding,
            delimiter=self.delimiter,
            quoting=self.quoting,
            header=self.header,
            sheet=self.sheet,
            files=self.files,
            repair_tags=self.repair == "bio",
        )

    @property
    def column_names(self) -> dict[str, str | None]:
        """Motet's column names and the names in the file; None: the same name, if the file has it."""
        names = {"text": self.text, "label": self.label, "client": self.client, **self.columns}
        configured = {name: column for name, column in names.items() if column is not None}
        used = set(configured.values())
        return {name: configured.get(name) for name in COLUMN_NAMES if name in configured or name not in used}


def load_corpus(config: DataConfig, seed: Seed, task: str | None = None) -> Corpus:
    """Load the corpus of a recipe and sample `limit` rows. If `task` is None, it is inferred from the columns."""
    if config.name is None and config.path is None:
        raise ConfigError(
            "data: expected data.name (a corpus by name), data.path (your own file), or both (a published corpus and "
            "its files). Set one of them."
        )
    return read_corpus(config, task).sample(config.limit, config.test_limit, seed.derive("data").numpy())


def read_corpus(config: DataConfig, task: str | None = None) -> Corpus:
    """Load the whole corpus, whatever `limit` is."""
    corpus = _load_by_name(config.name, config, task) if config.name is not None else _load_by_path(config, task)
    if config.resplit:
        has_known_name = config.name is not None or corpus.name in DATASET_REGISTRY
        split_key = None if has_known_name else OWN_DATA_SPLIT
        return split_rows(
            corpus.name, corpus.task, corpus.columns, config.test_share, corpus.report, split_key=split_key
        )
    return corpus


def _load_by_name(name: str, config: DataConfig, task: str | None) -> Corpus:
    if name in CORPUS_READERS:
        return _read_original_files(name, config)
    require_corpus(name)
    if config.path is not None:
        raise ConfigError(
            f"data.path is '{config.path}', but corpus '{name}' (data.name) is not read from a path. To read your own "
            "file, set data.name=null."
        )
    if name in DATASET_REGISTRY:
        return _load_registered(name)
    return load_from_hub(name, replace(config.read_options, task=task), config.test_share)


def require_corpus(name: str) -> None:
    """Raise an error if a name is a path, or if it is close to the name of a corpus. Other names may be on the hub."""
    if name in DATASET_REGISTRY:
        return
    if Path(name).is_file():
        raise ConfigError(f"data.name is '{name}', a file. For your own files, use data.path=… instead.")
    is_data_file = strip_compression_suffix(Path(name)).suffix.lower() in (*LOCAL_SUFFIXES, *ARCHIVE_SUFFIXES)
    is_hub_dataset = is_hub_name(name.partition(":")[0]) or Path(name).is_dir()
    if is_data_file or (is_path(name) and not is_hub_dataset):
        raise ConfigError(
            f"{describe_missing(name, DATASET_REGISTRY)} Expected your own file or folder, a corpus from: motet list "
            "datasets, or a dataset of the hub."
        )
    if (hint := did_you_mean(name, DATASET_REGISTRY)) and "/" not in name and ":" not in name:
        raise ConfigError(f"data.name: there is no corpus '{name}'.{hint} See: motet list datasets")


def _load_registered(name: str) -> Corpus:
    corpus = DATASET_REGISTRY.get(name, "data.name")()
    if not isinstance(corpus, Corpus):
        raise ConfigError(
            f"data.name: the function of '{name}' returned a {type(corpus).__name__}; expected a Corpus. "
            "Return one of motet.datasets.corpus."
        )
    return corpus


def _read_original_files(name: str, config: DataConfig) -> Corpus:
    folder = _find_corpus_folder(name, config.path)
    for key in ("files", "encoding", "delimiter", "header", "sheet"):
        if getattr(config, key) is not None:
            raise ConfigError(
                f"data.{key} is for your own files; the files of '{name}' have a fixed format. Remove it."
            )
    if config.repair is None:
        return CORPUS_READERS[name](folder)
    if name not in NER_READERS:
        raise ConfigError(f"data.repair is {config.repair}; '{name}' has no tags to repair. Remove it.")
    return NER_READERS[name](folder, repair=True)


def _find_corpus_folder(name: str, path: str | None) -> Path:
    """Return data.path, or the folder with the corpus's name in $MOTET_DATA, data/ or .data/."""
    if path is not None:
        return Path(path)
    base = name.partition("-")[0] if name.startswith("glue-") else name
    candidates = [
        Path(parent) / folder
        for parent in (os.environ.get("MOTET_DATA"), "data", ".data")
        if parent
        for folder in (name, base, base.replace("-", "_"))
    ]
    for folder in candidates:
        if folder.is_dir():
            return folder
    searched = ", ".join(dict.fromkeys(map(str, candidates)))
    raise ConfigError(
        f"data.name: the files of '{name}' were not found (searched {searched}). Put them there, or set data.path=…"
    )


def _load_by_path(config: DataConfig, task: str | None) -> Corpus:
    test = None if config.test is None else Path(config.test)
    options = replace(config.read_options, task=task)
    return load_local_corpus(Path(config.path or ""), test, options, config.test_share)
