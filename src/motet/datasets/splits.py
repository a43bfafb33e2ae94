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
from motet.datasets.corpus import Corpus, joined, split
from motet.datasets.original_files import PACKED, inside, places

Rows = dict[str, list[Any]]

PART = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "valid", "val", "validation", "development", "testa"), "dev"),
    **dict.fromkeys(("test", "testb"), "test"),
}
ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".conll", ".bio", ".ner")
ASIDE = (".", "README", "LICENSE")  # files that stand beside the data
_PART_IN_NAME = re.compile(rf"(^|[-_. ])({'|'.join(sorted(PART, key=len, reverse=True))})(?=$|[-_. ])", re.IGNORECASE)


def size(rows: Rows) -> int:
    return len(next(iter(rows.values()), ()))


def stacked(parts: Iterable[Rows]) -> Rows:
    """Rows of several files under each other; a column that one of them lacks is left away."""
    every = [part for part in parts if size(part)]
    shared = [name for name in (every[0] if every else {}) if all(name in part for part in every)]
    return {name: [value for part in every for value in part[name]] for name in shared}


def with_column(rows: Rows, name: str, value: str) -> Rows:
    return {**rows, name: [value] * size(rows)}


def told(files: Iterable[Path | str], left_out: Mapping[str, int] | None = None) -> str:
    """Where a corpus came from, and what of it is not there."""
    origin = ", ".join(dict.fromkeys(file if isinstance(file, str) else file.name for file in files))
    gone = ", ".join(f"{count:,} {what}" for what, count in sorted((left_out or {}).items()) if count)
    return f"{origin}; left out: {gone}" if gone else origin


def whole(name: str, task: str, train: Rows, test: Rows | None, source: str) -> Corpus:
    """A corpus of a training part and, if it came with one, a test part; without one a share of the rows is kept for it."""
    for part, rows in (("training", train), ("test", test)):
        if rows is not None and not size(rows):
            raise DataError(
                f"{name}: no {part} rows were found in {source}; give the folder that holds the original files."
            )
    return split(name, task, train, source=source) if test is None else joined(name, task, train, test, source)


def split_by(
    name: str,
    task: str,
    rows: Rows,
    groups: Sequence[Hashable],
    share: float = 0.2,
    source: str = "",
    seed: Seed = Seed(0),
) -> Corpus:
    """As `split`, but rows of the same group stay together, so that nothing of a test text was seen in training."""
    if not size(rows):
        raise DataError(f"{name}: no rows were found in {source}; give the folder that holds the original files.")
    counts = Counter(groups)
    names = list(counts)
    held: set[Hashable] = set()
    rest = share * size(rows)
    for i in seed.derive("split", name).numpy().permutation(len(names))[1:]:
        if rest <= 0:
            break
        held.add(names[i])
        rest -= counts[names[i]]
    apart = np.fromiter((group in held for group in groups), bool, len(groups))
    order = np.concatenate([np.flatnonzero(~apart), np.flatnonzero(apart)])
    columns = {key: [column[i] for i in order] for key, column in rows.items()}
    return Corpus(name, task, columns, int((~apart).sum()), source)


def unpacked(path: Path) -> Path:
    """What a file is called without the ending of its packing."""
    return path.with_suffix("") if path.suffix in PACKED else path


def part_of(path: Path) -> tuple[str | None, str]:
    """Which part a file's or folder's name speaks of (train, dev, test, or none), and the rest of the name."""
    stem = unpacked(path).name
    if Path(stem).suffix.lower() in ENDINGS:
        stem = Path(stem).stem
    match = _PART_IN_NAME.search(stem)
    if match is None:
        return None, stem
    return PART[match[2].lower()], (stem[: match.start()] + stem[match.end() :]).strip("-_. ")


def sub_corpora(folder: Path, suffixes: Sequence[str]) -> dict[str, dict[str | None, Path]]:
    """Files by sub-corpus and part, whether the sub-corpus is a folder, the beginning of a file's name, or both."""
    found: dict[tuple[str, ...], dict[str | None, Path]] = {}
    for place in places(folder):
        for path in inside(place):
            if not path.is_file() or unpacked(path).suffix.lower() not in suffixes or path.name.startswith(ASIDE):
                continue
            part, rest = part_of(path)
            title = []
            for above in path.relative_to(folder).parts[:-1]:
                said, name = part_of(Path(above))
                part = part or said
                title.append(name)
            title = [name for name in dict.fromkeys((*title, rest)) if name]
            if part or unpacked(path).suffix:  # a file without an ending may be anything
                found.setdefault(tuple(title), {}).setdefault(part, path)
    shared = 0
    while found and all(len(title) > shared + 1 for title in found) and len({title[shared] for title in found}) == 1:
        shared += 1
    return {"/".join(title[shared:]) or folder.name: parts for title, parts in sorted(found.items())}
