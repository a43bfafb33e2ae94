"""Original files as people keep them: in sub-folders, packed or not, with broken lines, in more than one encoding."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import json
import lzma
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from motet.core.errors import DataError, did_you_mean

DECOMPRESSORS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
MAX_DEPTH = 3  # an archive unpacked in a folder of its own, with a folder for each part, is still found
MISSING_COLUMNS = "rows with missing columns"


def _single_bytes(error: UnicodeError) -> tuple[str, int]:
    """A stray latin-1 byte in a UTF-8 file stands for itself; the rest of the file keeps its meaning."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("motet-single-bytes", _single_bytes)
csv.field_size_limit(2**31 - 1)  # the csv module stops at 128 KiB, which articles exceed


def check_folder(corpus: str, folder: Path) -> Path:
    """The folder a reader was given, if it is one."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"{corpus}: '{folder}' {what}; give the folder that holds the original files.")
    return folder


def list_folder(folder: Path) -> list[Path]:
    """What is in a folder, in the same order everywhere."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"{folder}: the folder cannot be read ({error.strerror}); check its permissions.") from None


def walk_folders(folder: Path, depth: int = MAX_DEPTH) -> Iterator[Path]:
    """The folder and those below it, nearest first; not what archivers and version control leave behind."""
    level = [folder]
    for _ in range(depth + 1):
        yield from level
        below = (inner for place in level for inner in list_folder(place) if inner.is_dir())
        level = [inner for inner in below if not inner.name.startswith((".", "__MACOSX"))]


def find_file(folder: Path, *names: str) -> Path | None:
    """The nearest of these names in the folder or below it, packed or not; in one place, the first."""
    for place in walk_folders(folder):
        for name in names:
            for suffix in ("", *DECOMPRESSORS):
                path = place / (name + suffix)
                if path.exists():
                    return path
    return None


def require_file(corpus: str, folder: Path, *names: str, hint: str) -> Path:
    """As `find_file`, but it has to be there."""
    path = find_file(check_folder(corpus, folder), *names)
    if path is None:
        kind = "file" if Path(names[0]).suffix else "folder"
        others = f" (nor {', '.join(names[1:])})" if names[1:] else ""
        raise DataError(f"{corpus}: there is no {kind} '{names[0]}'{others} in {folder}; {hint}")
    return path


@contextmanager
def open_text(path: Path, encoding: str = "utf-8-sig", newline: str = "\n") -> Iterator[TextIO]:
    """A text file, unpacked on the way; one that cannot be read is an error a person can mend."""
    try:
        with DECOMPRESSORS.get(path.suffix, open)(
            path, "rt", encoding=encoding, errors="motet-single-bytes", newline=newline
        ) as file:
            yield file
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(
            f"{path.name}: the file cannot be read ({why}); check {path}, and fetch it again if it is damaged."
        ) from None


def read_text(path: Path, encoding: str = "utf-8-sig") -> str:
    """All of a file, line ends as on Unix."""
    with open_text(path, encoding) as file:
        return file.read().replace("\r\n", "\n").replace("\r", "\n")


def read_lines(path: Path, encoding: str = "utf-8-sig") -> Iterator[tuple[int, str]]:
    """Numbered lines. Only a line feed ends one: tweets and tables hold other characters that Python takes for line ends."""
    with open_text(path, encoding) as file:
        for number, line in enumerate(file, 1):
            yield number, line.rstrip("\r\n")


def parse_csv_line(line: str) -> list[str]:
    """The fields of one csv line by itself, so that an unbalanced quote harms no other line."""
    return next(csv.reader([line.replace("\r", " ")]), [])


def _quoted(path: Path) -> Iterator[tuple[int, list[str]]]:
    with open_text(path, newline="") as file:
        reader = csv.reader(file)
        for row in reader:
            yield reader.line_num, row


def read_columns(
    path: Path, names: Sequence[str], left_out: Counter[str], corpus: str, tabs: bool = False
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Some columns of a file with a header, and the line of each row; rows with too few columns are left out and counted."""
    # Where tabs part the columns, a quote is a letter like others.
    rows = ((number, line.split("\t")) for number, line in read_lines(path)) if tabs else _quoted(path)
    header = [name.strip() for name in next(rows, (0, []))[1]]
    for name in names:
        if name not in header:
            raise DataError(
                f"{corpus}: {path.name} has no column '{name}'; its first line names {', '.join(header) or 'nothing'}."
                f"{did_you_mean(name, header)} Give the original file."
            )
    where = [header.index(name) for name in names]
    for number, row in rows:
        if len(row) > max(where):
            yield number, tuple(row[i] for i in where)
        elif any(row):
            left_out[MISSING_COLUMNS] += 1


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise DataError(f"{path.name}: this is no JSON ({error}); give the original file, or fetch it again.") from None


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a jsonl file, with their lines."""
    for number, line in read_lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(
                f"{path.name}, line {number}: this is no JSON ({error}); expected one object a line."
            ) from None
        if not isinstance(row, dict):
            raise DataError(f"{path.name}, line {number}: expected a JSON object, found {type(row).__name__}.")
        yield number, row
