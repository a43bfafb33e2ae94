"""Open compressed files: gz, bz2, xz, zst and lz4. An archive of one or more files (zip, tar) is unpacked first."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from motet.core.errors import DataError, first_line
from motet.datasets.disk_arrays import temporary_folder


def _open_with_arrow(path: Path, _: str) -> Any:
    import pyarrow

    codecs = {".zst": "zstd", ".lz4": "lz4"}
    return pyarrow.input_stream(str(path), compression=codecs[path.suffix.lower()])


DECOMPRESSORS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_with_arrow,
    ".lz4": _open_with_arrow,
}
ARCHIVE_SUFFIXES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError)


def is_compressed(path: Path) -> bool:
    return path.suffix.lower() in DECOMPRESSORS


def strip_compression_suffix(path: Path) -> Path:
    return path.with_suffix("") if is_compressed(path) else path


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """Open a file and decompress it if needed. Damaged files raise a DataError, also while they are read."""
    try:
        with DECOMPRESSORS.get(path.suffix.lower(), open)(path, "rb") as file:
            yield file
    except DataError:
        raise
    except READ_ERRORS as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise DataError(
            f"{path.name}: the file cannot be read ({reason}). Check {path}, and download it again if it is damaged."
        ) from None


def is_archive(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(ARCHIVE_SUFFIXES)


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack an archive into a temporary folder; yield the folder, or the file if there is only one."""
    with tempfile.TemporaryDirectory(prefix="motet-", dir=temporary_folder()) as name:
        folder = Path(name) / path.name
        folder.mkdir()
        try:
            if zipfile.is_zipfile(path):
                _unpack_zip(path, folder)
            else:
                _unpack_tar(path, folder)
        except DataError:
            raise
        except Exception as error:  # for a damaged archive, zipfile and tarfile raise errors of many types
            raise DataError(
                f"{path.name}: the archive cannot be unpacked ({first_line(error)}). Unpack it yourself, and set "
                "data.path to the folder."
            ) from None
        files = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
        yield files[0] if len(files) == 1 else folder


def _unpack_zip(path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if not is_hidden(PurePosixPath(member.filename))]
        _check_space(path, folder, sum(member.file_size for member in members))
        archive.extractall(folder, members)


def _unpack_tar(path: Path, folder: Path) -> None:
    with tarfile.open(path) as archive:
        members = [
            member
            for member in archive.getmembers()
            if (member.isfile() or member.isdir()) and not is_hidden(PurePosixPath(member.name))
        ]
        _check_space(path, folder, sum(member.size for member in members))
        archive.extractall(folder, members, filter="data")


def is_hidden(path: PurePosixPath | Path) -> bool:
    """True for hidden files, leftovers of macOS and Windows, and lock files of office programs, at any depth."""
    names = [name for name in path.parts if name not in (".", "..", "/")]
    return any(name.startswith((".", "~$", "__MACOSX")) or name in ("Thumbs.db", "desktop.ini") for name in names)


def _check_space(path: Path, folder: Path, size: int) -> None:
    if size > shutil.disk_usage(folder).free:
        raise DataError(
            f"{path.name}: the archive holds {size / 1e9:.1f} GB, more than the free space in {folder.parent}. Set the "
            "environment variable TMPDIR to a folder with more space."
        )
