"""Find training and test files, and build a corpus from their columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motet.core.errors import DataError
from motet.core.rng import Seed
from motet.datasets.columns import take
from motet.datasets.compression import strip_compression_suffix
from motet.datasets.corpus import TEST_SHARE, Corpus, join_splits, split_corpus
from motet.datasets.original_files import list_folder, walk_folders
from motet.datasets.read_log import ReadLog
from motet.datasets.read_report import ReadReport

Columns = dict[str, list[Any]]

SPLIT_NAMES = {
    **dict.fromkeys(("train", "training", "trainset", "trn"), "train"),
    **dict.fromkeys(("dev", "valid", "val", "validation", "development", "devset", "valset", "testa"), "dev"),
    **dict.fromkeys(("test", "testing", "testset", "tst", "testb"), "test"),
}
DATA_SUFFIXES = (
    ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".tab", ".txt", ".conll", ".bio", ".iob", ".iob2", ".ner", ".parquet",
    ".pq", ".arrow", ".feather", ".ipc", ".xlsx", ".xlsm",
)  # fmt: skip
IGNORED_PREFIXES = (".", "README", "LICENSE")
_ALL_SPLITS = re.compile(r"[-_. ]all$", re.IGNORECASE)
_SPLIT_IN_NAME = re.compile(
    rf"(^|[-_. ]|(?<=\d))({'|'.join(sorted(SPLIT_NAMES, key=len, reverse=True))})(?=$|[-_. ])", re.IGNORECASE
)


def num_rows(columns: Mapping[str, Sequence[Any]]) -> int:
    return len(next(iter(columns.values()), ()))


def concatenate(parts: Iterable[Columns]) -> Columns:
    """Concatenate the rows of several files; columns that are missing in a file are dropped."""
    nonempty = [part for part in parts if num_rows(part)]
    shared = [name for name in (nonempty[0] if nonempty else {}) if all(name in part for part in nonempty)]
    return {name: [value for part in nonempty for value in part[name]] for name in shared}


def add_column(columns: Columns, name: str, value: str) -> Columns:
    """Return the columns with one more, which has the same value in every row."""
    return {**columns, name: [value] * num_rows(columns)}


def build_corpus(name: str, task: str, train: Columns, test: Columns | None, log: ReadLog) -> Corpus:
    """Build a corpus from a training and a test part; without a test part, hold out a random share of the rows."""
    for part, columns in (("training", train), ("test", test)):
        if columns is not None and not num_rows(columns):
            raise DataError(
                f"{name}: no {part} rows found in {log.file_names}. Give the folder that holds the original files."
            )
    if test is None:
        return split_corpus(name, task, train, report=log.build_report(num_rows(train)))
    return join_splits(name, task, train, test, log.build_report(num_rows(train) + num_rows(test)))


def split_by_group(
    name: str,
    task: str,
    columns: Mapping[str, Sequence[Any]],
    groups: Sequence[Hashable],
    log: ReadLog,
) -> Corpus:
    """Like `split_corpus`, but keep the rows of a group together, so that no test text was seen in training."""
    if not num_rows(columns):
        raise DataError(f"{name}: no rows found in {log.file_names}. Give the folder that holds the original files.")
    return cut_by_group(name, task, columns, groups, TEST_SHARE, log.build_report(len(groups)))


def cut_by_group(
    name: str,
    task: str,
    columns: Mapping[str, Sequence[Any]],
    groups: Sequence[Hashable],
    test_share: float,
    report: ReadReport,
    split_key: str | None = None,
) -> Corpus:
    """Build a corpus with whole groups in the test set, in total about a share of the rows."""
    sizes = Counter(groups)
    names = list(sizes)
    test_groups: set[Hashable] = set()
    missing = test_share * num_rows(columns)
    key = name if split_key is None else split_key
    for i in Seed(0).derive("split", key).numpy().permutation(len(names))[1:]:
        if missing <= 0:
            break
        test_groups.add(names[i])
        missing -= sizes[names[i]]
    is_test = np.fromiter((group in test_groups for group in groups), bool, len(groups))
    order = np.concatenate([np.flatnonzero(~is_test), np.flatnonzero(is_test)])
    reordered = {key: take(column, order) for key, column in columns.items()}
    return Corpus(name, task, reordered, int((~is_test).sum()), report)


def split_rows(
    name: str,
    task: str,
    columns: Mapping[str, Sequence[Any]],
    test_share: float,
    report: ReadReport,
    split_key: str | None = None,
) -> Corpus:
    """Hold out a share of the rows; for question answering, whole articles or passages if there are several."""
    titles = columns.get("title", ())
    groups = titles if len(set(titles)) > 1 else columns.get("context", ())
    if task != "qa" or len(set(groups)) < 2:
        return split_corpus(name, task, columns, test_share, report, split_key=split_key)
    return cut_by_group(name, task, columns, groups, test_share, report, split_key)


def cut_splits(corpus: Corpus) -> tuple[Columns, Columns]:
    """Return the training columns and the test columns of a corpus."""
    train, test = (
        {name: list(column[rows]) for name, column in corpus.columns.items()}
        for rows in (slice(None, corpus.num_train), slice(corpus.num_train, None))
    )
    return train, test


def parse_split_name(path: Path) -> tuple[str | None, str]:
    """Find a split (train, dev, test) in the name of a file or folder; return it, or None, and the rest of the name."""
    stem = strip_compression_suffix(path).name
    if Path(stem).suffix.lower() in DATA_SUFFIXES:
        stem = Path(stem).stem
    match = _SPLIT_IN_NAME.search(stem)
    if match is None:
        return None, stem
    return SPLIT_NAMES[match[2].lower()], (stem[: match.start()] + stem[match.end() :]).strip("-_. ")


def find_subcorpora(folder: Path, suffixes: Sequence[str]) -> dict[str, dict[str | None, Path]]:
    """Group files by subcorpus and split; a subcorpus is a folder, a prefix of file names, or both.

    The split of a file such as `wnut16_all.txt` is "all" if the subcorpus also has a training file, else None.
    """
    subcorpora: dict[tuple[str, ...], dict[str | None, Path]] = {}
    for parent in walk_folders(folder):
        for path in list_folder(parent):
            suffix = strip_compression_suffix(path).suffix
            if not path.is_file() or suffix.lower() not in suffixes or path.name.startswith(IGNORED_PREFIXES):
                continue
            split, title = _parse_subcorpus(path.relative_to(folder))
            if split or suffix:  # a name with neither tells nothing about the content
                subcorpora.setdefault(title, {}).setdefault(split, path)
    for files in subcorpora.values():
        if "all" in files and "train" not in files:
            files.setdefault(None, files.pop("all"))
    prefix = 0
    while _share_name(subcorpora, prefix):
        prefix += 1
    return {"/".join(title[prefix:]) or folder.name: files for title, files in sorted(subcorpora.items())}


def _parse_subcorpus(path: Path) -> tuple[str | None, tuple[str, ...]]:
    """Return the split of a file, and the names of its folders and itself without the split."""
    split, name = parse_split_name(path)
    if split is None and _ALL_SPLITS.search(name):
        split, name = "all", name[:-4]
    names = []
    for folder in path.parts[:-1]:
        folder_split, folder_name = parse_split_name(Path(folder))
        split = split or folder_split
        names.append(folder_name)
    return split, tuple(n for n in dict.fromkeys((*names, name)) if n)


def _share_name(titles: Iterable[tuple[str, ...]], index: int) -> bool:
    """True if all titles have the same name at `index`, and more names after it."""
    titles = list(titles)
    return bool(titles) and all(len(t) > index + 1 for t in titles) and len({t[index] for t in titles}) == 1
