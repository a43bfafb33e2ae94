"""From what was read to a corpus: which files are for training and which for testing, and what to do when there is one only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motet.core.errors import DataError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus, join_splits, split_corpus
from motet.datasets.original_files import DECOMPRESSORS, list_folder, walk_folders

Columns = dict[str, list[Any]]

SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "valid", "val", "validation", "development", "testa"), "dev"),
    **dict.fromkeys(("test", "testb"), "test"),
}
DATA_SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".conll", ".bio", ".ner")
IGNORED_PREFIXES = (".", "README", "LICENSE")  # files that stand beside the data
_PART_IN_NAME = re.compile(
    rf"(^|[-_. ])({'|'.join(sorted(SPLIT_NAMES, key=len, reverse=True))})(?=$|[-_. ])", re.IGNORECASE
)


def num_rows(rows: Columns) -> int:
    return len(next(iter(rows.values()), ()))


def concatenate(parts: Iterable[Columns]) -> Columns:
    """Rows of several files under each other; a column that one of them lacks is left away."""
    every = [part for part in parts if num_rows(part)]
    shared = [name for name in (every[0] if every else {}) if all(name in part for part in every)]
    return {name: [value for part in every for value in part[name]] for name in shared}


def add_column(rows: Columns, name: str, value: str) -> Columns:
    return {**rows, name: [value] * num_rows(rows)}


def describe_source(files: Iterable[Path | str], left_out: Mapping[str, int] | None = None) -> str:
    """Where a corpus came from, and what of it is not there."""
    origin = ", ".join(dict.fromkeys(file if isinstance(file, str) else file.name for file in files))
    gone = ", ".join(f"{count:,} {what}" for what, count in sorted((left_out or {}).items()) if count)
    return f"{origin}; left out: {gone}" if gone else origin


def build_corpus(name: str, task: str, train: Columns, test: Columns | None, source: str) -> Corpus:
    """A corpus of a training part and, if it came with one, a test part; without one a share of the rows is kept for it."""
    for part, rows in (("training", train), ("test", test)):
        if rows is not None and not num_rows(rows):
            raise DataError(
                f"{name}: no {part} rows were found in {source}; give the folder that holds the original files."
            )
    return (
        split_corpus(name, task, train, source=source) if test is None else join_splits(name, task, train, test, source)
    )


def split_by_group(
    name: str,
    task: str,
    rows: Columns,
    groups: Sequence[Hashable],
    share: float = 0.2,
    source: str = "",
    seed: Seed = Seed(0),
) -> Corpus:
    """As `split_corpus`, but rows of the same group stay together, so that nothing of a test text was seen in training."""
    if not num_rows(rows):
        raise DataError(f"{name}: no rows were found in {source}; give the folder that holds the original files.")
    counts = Counter(groups)
    names = list(counts)
    held: set[Hashable] = set()
    rest = share * num_rows(rows)
    for i in seed.derive("split", name).numpy().permutation(len(names))[1:]:
        if rest <= 0:
            break
        held.add(names[i])
        rest -= counts[names[i]]
    apart = np.fromiter((group in held for group in groups), bool, len(groups))
    order = np.concatenate([np.flatnonzero(~apart), np.flatnonzero(apart)])
    columns = {key: [column[i] for i in order] for key, column in rows.items()}
    return Corpus(name, task, columns, int((~apart).sum()), source)


def strip_compression_suffix(path: Path) -> Path:
    """What a file is called without the ending of its packing."""
    return path.with_suffix("") if path.suffix in DECOMPRESSORS else path


def parse_split_name(path: Path) -> tuple[str | None, str]:
    """Which part a file's or folder's name speaks of (train, dev, test, or none), and the rest of the name."""
    stem = strip_compression_suffix(path).name
    if Path(stem).suffix.lower() in DATA_SUFFIXES:
        stem = Path(stem).stem
    match = _PART_IN_NAME.search(stem)
    if match is None:
        return None, stem
    return SPLIT_NAMES[match[2].lower()], (stem[: match.start()] + stem[match.end() :]).strip("-_. ")


def find_subcorpora(folder: Path, suffixes: Sequence[str]) -> dict[str, dict[str | None, Path]]:
    """Files by sub-corpus and part, whether the sub-corpus is a folder, the beginning of a file's name, or both."""
    found: dict[tuple[str, ...], dict[str | None, Path]] = {}
    for place in walk_folders(folder):
        for path in list_folder(place):
            if (
                not path.is_file()
                or strip_compression_suffix(path).suffix.lower() not in suffixes
                or path.name.startswith(IGNORED_PREFIXES)
            ):
                continue
            part, rest = parse_split_name(path)
            title = []
            for above in path.relative_to(folder).parts[:-1]:
                said, name = parse_split_name(Path(above))
                part = part or said
                title.append(name)
            title = [name for name in dict.fromkeys((*title, rest)) if name]
            if part or strip_compression_suffix(path).suffix:  # a file without an ending may be anything
                found.setdefault(tuple(title), {}).setdefault(part, path)
    shared = 0
    while found and all(len(title) > shared + 1 for title in found) and len({title[shared] for title in found}) == 1:
        shared += 1
    return {"/".join(title[shared:]) or folder.name: parts for title, parts in sorted(found.items())}
