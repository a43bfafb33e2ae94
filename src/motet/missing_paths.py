"""Errors about files and folders that do not exist or cannot be read."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from motet.core.errors import first_line

MAX_ENTRIES, MAX_SUGGESTIONS = 10_000, 3  # of a folder; of one error
SIMILARITY = 0.6  # of 1: file names share their suffix, so they are more alike than other words
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9_]*$")
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def is_path(word: str) -> bool:
    """Return whether a word that is no known name is a path: it has a separator, or a suffix such as `.csv`."""
    return "/" in word or os.sep in word or word in (".", "..", "~") or _SUFFIX.search(word) is not None


def is_hub_name(word: str) -> bool:
    """Return whether a word has the form `user/name`, and `user` is not a folder here."""
    return _HUB_NAME.fullmatch(word) is not None and not Path(word).parent.is_dir()


def describe_missing(path: str | Path, names: Iterable[str] = ()) -> str:
    """Return `"'data/revews.csv' does not exist: there is no 'revews.csv' in /home/ann/data. Did you mean …?"`

    `names` are known names that may be meant if no file is close, such as recipes.
    """
    missing = Path(path)
    while not os.path.lexists(missing.parent):
        missing = missing.parent
    folder = missing.parent.absolute()
    if not folder.is_dir():
        return f"'{path}' does not exist: {folder} is not a folder."
    if missing.is_symlink():
        return f"'{path}' does not exist: {folder / missing.name} is a link to {missing.readlink()}, which is missing."
    if missing.parts[:1] == ("~",):
        return f"'{path}' does not exist: ~ is not expanded here. Write the whole path."
    matches = _close_names(missing.name, _list_names(missing.parent))
    choices = [str(missing.with_name(name)) for name in matches] or _close_names(Path(path).stem, names)
    hint = f" Did you mean {' or '.join(map(repr, choices))}?" if choices else ""
    return f"'{path}' does not exist: there is no '{missing.name}' in {folder}.{hint}"


def describe_read_error(path: str | Path, error: Exception) -> str:
    """Return a sentence about a file that could not be read: it does not exist, or `error` says why."""
    if isinstance(error, FileNotFoundError):
        return describe_missing(path)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
    return f"'{path}' cannot be read ({reason})."


def _list_names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, MAX_ENTRIES)]
    except OSError:
        return []


def _close_names(name: str, names: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(name, list(names), n=MAX_SUGGESTIONS, cutoff=SIMILARITY)
