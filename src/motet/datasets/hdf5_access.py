"""Open HDF5 files that others wrote. HDF5 can refer to other files on the disk; such files are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
from h5py import h5d, h5l, h5o

from motet.core.errors import DataError, MotetError, first_line
from motet.missing_paths import describe_missing

_INTERNAL_LINKS = (h5l.TYPE_HARD, h5l.TYPE_SOFT)
_READ_ERRORS = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, OverflowError)


@contextmanager
def open_hdf5(path: Path, hint: str) -> Iterator[h5py.File]:
    """Open a file for reading. Damaged content raises a DataError that ends in `hint`, also while the file is read."""
    try:
        with h5py.File(path, "r") as file:
            check_self_contained(file)
            yield file
    except MotetError:
        raise
    except _READ_ERRORS as error:
        problem = f"'{path}' cannot be read as HDF5 ({first_line(error)})." if path.exists() else describe_missing(path)
        raise DataError(f"{problem} {hint}") from None


def probe_hdf5(path: Path, probe: Callable[[h5py.File], bool]) -> bool:
    """Return what `probe` returns; False if it fails or the file is not HDF5. It must not follow links."""
    try:
        with h5py.File(path, "r") as file:
            return probe(file)
    except _READ_ERRORS:
        return False


def check_self_contained(file: h5py.File) -> None:
    """Raise an error if an external link, external storage or a virtual dataset refers to another file."""

    def check_link(name: bytes, info: Any) -> tuple[bytes, str] | None:  # h5py stops at the first value
        return None if info.type in _INTERNAL_LINKS else (name, "a link to another file")

    def check_object(name: bytes, info: Any) -> tuple[bytes, str] | None:
        if info.type != h5o.TYPE_DATASET:
            return None
        properties = h5d.open(file.id, name).get_create_plist()
        if properties.get_external_count():
            return name, "stored in another file"
        return (
            (name, "a virtual dataset, which can read other files") if properties.get_layout() == h5d.VIRTUAL else None
        )

    problem = file.id.links.visit(check_link, info=True) or h5o.visit(file.id, check_object, info=True)
    if problem is not None:
        raise DataError(
            f"'{file.filename}' is refused: '{problem[0].decode(errors='replace')}' is {problem[1]}. A data file must hold "
            "all its data: copy it into the file with h5repack, or get another file."
        )
