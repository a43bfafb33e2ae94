"""Read the original files of a published corpus: nested, compressed, with broken lines or mixed encodings."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from motet.core.errors import DataError
from motet.core.suggestions import did_you_mean
from motet.datasets.compression import DECOMPRESSORS
from motet.datasets.json_parsing import parse_json
from motet.datasets.read_log import ReadLog
from motet.datasets.text_files import read_blocks, read_lines, read_text
from motet.missing_paths import describe_missing

MAX_DEPTH = 3  # an archive unpacked into its own folder, with one subfolder per split
MISSING_COLUMNS = "rows with missing columns"


csv.field_size_limit(2**31 - 1)  # news articles are longer than the default limit of 128 KiB


def check_folder(corpus: str, folder: Path) -> Path:
    """Return `folder`, or raise if it is not a folder."""
    if not folder.is_dir():
        problem = f"'{folder}' is a file." if folder.exists() else describe_missing(folder)
        raise DataError(f"{corpus}: {problem} Give the folder that holds the original files.")
    return folder


def list_folder(folder: Path) -> list[Path]:
    """Return the entries of a folder, sorted by name."""
    try:
        return sorted(folder.iterdir(), key=attrgetter("name"))  # several times as fast as to compare paths
    except OSError as error:
        raise _unreadable(folder, error) from None


def _list_subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder, sorted by name. A corpus may have thousands of files, which are not looked at."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_symlink() or entry.is_dir())
    except OSError as error:
        raise _unreadable(folder, error) from None
    return [path for path in map(folder.joinpath, names) if path.is_dir()]


def _unreadable(folder: Path, error: OSError) -> DataError:
    return DataError(f"{folder}: the folder cannot be read ({error.strerror}). Check its permissions.")


def walk_folders(folder: Path) -> Iterator[Path]:
    """Yield the folder and its subfolders, breadth first, without hidden folders and macOS archive leftovers."""
    level = [folder]
    for _ in range(MAX_DEPTH + 1):
        yield from level
        subfolders = (entry for parent in level for entry in _list_subfolders(parent))
        level = [entry for entry in subfolders if not entry.name.startswith((".", "__MACOSX"))]


def find_in_folder(folder: Path, *names: str) -> Path | None:
    """Return the first of these files or folders that is directly in `folder`, compressed or not."""
    candidates = (folder / (name + suffix) for name in names for suffix in ("", *DECOMPRESSORS))
    return next((path for path in candidates if path.exists()), None)


def find_file(folder: Path, *names: str) -> Path | None:
    """Return the first of these files or folders at or below `folder`, compressed or not; the nearest level wins."""
    matches = (find_in_folder(parent, *names) for parent in walk_folders(folder))
    return next((path for path in matches if path is not None), None)


def require_file(corpus: str, folder: Path, *names: str, hint: str) -> Path:
    """Like `find_file`, but raise if nothing matches; `hint` tells the user where to get the files."""
    path = find_file(check_folder(corpus, folder), *names)
    if path is None:
        raise DataError(f"{corpus}: there is no {_describe_names(names)} in {folder}; {hint}")
    return path


def find_file_sets(corpus: str, folder: Path, *alternatives: Sequence[str], hint: str) -> list[tuple[Path, ...]]:
    """Find files that belong together: one of each list of names, all in the same folder.

    Returns one set for each folder that has all files, the nearest folder first.
    """
    sets = []
    incomplete: tuple[Path, Sequence[str]] | None = None
    for parent in walk_folders(check_folder(corpus, folder)):
        matches = [find_in_folder(parent, *names) for names in alternatives]
        files = tuple(path for path in matches if path is not None)
        if len(files) == len(matches):
            sets += [files] if files not in sets else []  # "aclImdb/train" is also "train" in aclImdb
        elif files and incomplete is None:
            incomplete = files[0], alternatives[matches.index(None)]
    if not sets and incomplete is not None:
        file, names = incomplete
        raise DataError(
            f"{corpus}: there is no {_describe_names(names)} beside {file.relative_to(folder).as_posix()} in {folder}; {hint}"
        )
    if not sets:
        raise DataError(f"{corpus}: there is no {_describe_names(alternatives[0])} in {folder}; {hint}")
    return sets


def require_file_set(corpus: str, folder: Path, *alternatives: Sequence[str], hint: str) -> tuple[Path, ...]:
    """Like `find_file_sets`, for a corpus that must be in one place only; the nearest level wins."""
    sets = find_file_sets(corpus, folder, *alternatives, hint=hint)
    depth = min(len(files[0].parts) for files in sets)
    return choose_file_set(corpus, folder, [files for files in sets if len(files[0].parts) == depth])


def choose_file_set(corpus: str, folder: Path, sets: Sequence[tuple[Path, ...]]) -> tuple[Path, ...]:
    """Return the only set of files, or raise an error that names the folders of all."""
    if len(sets) > 1:
        places = ", ".join(files[0].parent.relative_to(folder).as_posix() for files in sets)
        raise DataError(f"{corpus}: the files are in several folders ({places}). Set data.path to one of them.")
    return sets[0]


def _describe_names(names: Sequence[str]) -> str:
    kind = "file" if Path(names[0]).suffix else "folder"
    alternatives = f" (nor {', '.join(names[1:])})" if names[1:] else ""
    return f"{kind} '{names[0]}'{alternatives}"


def parse_csv_line(line: str) -> list[str]:
    """Parse one CSV line on its own, so that an unbalanced quote cannot swallow the next lines."""
    return next(csv.reader([line.replace("\r", " ")]), [])


def _read_csv(path: Path, log: ReadLog) -> Iterator[tuple[int, list[str]]]:
    # Blocks end at a line feed, so splitting them keeps every line whole. csv reads "\r" as a line end, too.
    lines = (line for block in read_blocks(path, log) for line in io.StringIO(block, newline=""))
    reader = csv.reader(lines)
    for row in reader:
        yield reader.line_num, row


def read_columns(
    path: Path, names: Sequence[str], log: ReadLog, corpus: str, tabs: bool = False
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield line numbers and the named columns of a CSV or TSV file with a header; drop rows with too few columns.

    In a TSV file (`tabs`), quotes have no special meaning.
    """
    rows = ((number, line.split("\t")) for number, line in read_lines(path, log)) if tabs else _read_csv(path, log)
    header = [name.strip() for name in next(rows, (0, []))[1]]
    for name in names:
        if name not in header:
            raise DataError(
                f"{corpus}: {path.name} has no column '{name}'; its header names {', '.join(header) or 'nothing'}."
                f"{did_you_mean(name, header)} Use the original file."
            )
    indices = [header.index(name) for name in names]
    for number, row in rows:
        if len(row) > max(indices):
            yield number, tuple(row[i] for i in indices)
        elif any(row):
            log.drop(MISSING_COLUMNS, path, number)


def read_json(path: Path, log: ReadLog) -> Any:
    return parse_json(path.name, read_text(path, log), ". Use the original file, or download it again.")


def read_jsonl(path: Path, log: ReadLog) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line numbers and objects of a JSON Lines file."""
    for number, line in read_lines(path, log):
        if not line.strip():
            continue
        row = parse_json(f"{path.name}, line {number}", line, "; expected one object per line.")
        if not isinstance(row, dict):
            raise DataError(f"{path.name}, line {number}: expected a JSON object, found {type(row).__name__}.")
        yield number, row
