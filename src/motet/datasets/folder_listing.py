"""List the files of a user's own folder. Links are followed, so that no part of the data is left out."""

from __future__ import annotations

from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.compression import is_hidden
from motet.datasets.original_files import list_folder
from motet.datasets.read_log import ReadLog


def list_visible(folder: Path) -> list[Path]:
    """Return the entries of a folder that are not hidden, sorted by name."""
    paths = [path for path in list_folder(folder) if not is_hidden(Path(path.name))]
    broken = next((path for path in paths if path.is_symlink() and not path.exists()), None)
    if broken is not None:
        raise DataError(
            f"data.path: '{broken}' is a link to '{broken.readlink()}', which does not exist. Fetch the file, or remove the "
            "link."
        )
    return paths


def list_files(folder: Path, log: ReadLog) -> list[Path]:
    """Return all files below a folder that are not hidden, sorted by path, also those in linked folders."""
    roots, files, pending = [folder.resolve()], [], [folder]
    while pending:
        for path in list_visible(pending.pop()):
            if path.is_file():
                files.append(path)
            elif path.is_dir() and _is_new(path, roots, log):
                pending.append(path)
    return sorted(files)


def _is_new(path: Path, roots: list[Path], log: ReadLog) -> bool:
    """False for a link to a folder within one of `roots`, whose files are listed there. Other targets become roots."""
    if not path.is_symlink():
        return True
    target = path.resolve()
    if any(target.is_relative_to(root) for root in roots):
        log.ignore(path, "a link to a folder that is read")
        return False
    if any(root.is_relative_to(target) for root in roots):
        raise DataError(
            f"data.path: '{path}' is a link to '{target}', which holds other folders that are read. Remove the link, or set "
            "data.path to one of these folders."
        )
    roots.append(target)
    return True
