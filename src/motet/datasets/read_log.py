"""The log that a reader writes while it reads. It becomes the read report of the corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from motet.datasets.read_report import MAX_EXAMPLES, DroppedRows, ReadReport, SourceFile

MAX_FILES = 20  # if there are more, the files of a folder become one entry
_BLOCK_SIZE = 1 << 20


class ReadLog:
    """Collects what happens while the files at or below `root` are read."""

    def __init__(self, root: Path, origin: str = "") -> None:
        self.root = root
        self._root_prefix = f"{root.as_posix()}/"
        self.origin = origin
        self.columns: dict[str, str] = {}
        self.task_reason = ""
        self.unused_columns: tuple[str, ...] = ()
        self._files: dict[Path, SourceFile] = {}
        self._ignored: dict[str, None] = {}
        self._dropped: dict[str, DroppedRows] = {}
        self._changes: dict[str, int] = {}
        self._notes: dict[str, None] = {}
        self._warnings: dict[str, None] = {}

    def fork(self) -> ReadLog:
        """Return an empty log for a first look at a file that may not be read."""
        return ReadLog(self.root, self.origin)

    def relative_name(self, path: Path) -> str:
        """Return the path below data.path; for data.path itself, its name."""
        name = path.as_posix()
        if name.startswith(self._root_prefix):  # the usual case; a corpus may have thousands of files
            return name[len(self._root_prefix) :]
        if path == self.root or not path.is_relative_to(self.root):
            return path.name
        return path.relative_to(self.root).as_posix()

    def add_file(
        self,
        path: Path,
        encoding: str = "",
        encoding_reason: str = "",
        replaced_bytes: int = 0,
        has_byte_order_mark: bool = False,
        opened: BinaryIO | None = None,
    ) -> None:
        """Record a file that is read. A file that is read twice is recorded once.

        `opened`: the file itself, if it is open at its start and not compressed. It need not be opened again then.
        """
        known = self._files.get(path)
        size, digest = (known.size, known.digest) if known is not None else measure_file(path, opened)
        self._files[path] = SourceFile(
            name=self.relative_name(path),
            size=size,
            digest=digest,
            encoding=encoding,
            encoding_reason=encoding_reason,
            replaced_bytes=replaced_bytes,
            has_byte_order_mark=has_byte_order_mark,
        )

    def ignore(self, path: Path, reason: str) -> None:
        """Record a file that was found and not read."""
        self._ignored[f"{self.relative_name(path)} ({reason})"] = None

    def drop(self, reason: str, path: Path | None = None, position: int | str = "", count: int = 1) -> None:
        """Record rows that do not get into the corpus; `position` is a line number or a description."""
        if not count:
            return
        rows = self._dropped.get(reason, DroppedRows(reason, 0))
        if path is not None and len(rows.examples) < MAX_EXAMPLES:
            place = f"line {position}" if isinstance(position, int) else position
            example = f"{self.relative_name(path)}, {place}" if place else self.relative_name(path)
            rows = replace(rows, examples=(*rows.examples, example))
        self._dropped[reason] = replace(rows, count=rows.count + count)

    def change(self, what: str, count: int = 1) -> None:
        """Count values that were repaired; `what` is a plural noun phrase."""
        if count:
            self._changes[what] = self._changes.get(what, 0) + count

    def note(self, text: str) -> None:
        self._notes[text] = None

    def warn(self, text: str) -> None:
        """Record a sentence that a user should see before training."""
        self._warnings[text] = None

    @property
    def file_names(self) -> str:
        """The names of the files that were read, for error messages."""
        return ", ".join(file.name for file in _group_files(list(self._files.values()))) or str(self.root)

    def build_report(self, num_rows: int) -> ReadReport:
        """Return the report of a corpus with `num_rows` rows."""
        return ReadReport(
            origin=self.origin,
            files=_group_files(list(self._files.values())),
            ignored_files=tuple(self._ignored),
            num_rows=num_rows + sum(rows.count for rows in self._dropped.values()),
            dropped=tuple(self._dropped[reason] for reason in sorted(self._dropped)),
            changes=dict(self._changes),
            columns=dict(self.columns),
            task_reason=self.task_reason,
            unused_columns=self.unused_columns,
            notes=tuple(self._notes),
            warnings=tuple(self._warnings),
        )


def measure_file(path: Path, opened: BinaryIO | None = None) -> tuple[int, str]:
    """Return the size of a file and the SHA-256 of its bytes, as sha256sum prints it. `opened` is rewound."""
    with path.open("rb") if opened is None else nullcontext(opened) as file:
        digest = hashlib.sha256()
        while block := file.read(_BLOCK_SIZE):
            digest.update(block)
        size = file.tell()
        file.seek(0)
    return size, digest.hexdigest()


def _group_files(files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
    """Merge the files of the deepest folders, at last by suffix, until at most MAX_FILES entries are left."""
    depth = max((_depth(file.name) for file in files), default=0)
    while len(files) > MAX_FILES and depth >= 0:
        groups: dict[str, list[SourceFile]] = {}
        for file in files:
            groups.setdefault(_group_name(file.name, depth), []).append(file)
        files = [_merge(name, group) for name, group in groups.items()]
        depth -= 1
    return tuple(files)


def _depth(name: str) -> int:
    return name.rstrip("/").count("/")


def _group_name(name: str, depth: int) -> str:
    """Return the parent folder of a file at this depth; for a file at the top, its suffix."""
    if _depth(name) < depth or (depth == 0 and name.endswith("/")):
        return name
    if depth == 0:
        return f"*{PurePosixPath(name).suffix}"
    return name.rstrip("/").rpartition("/")[0] + "/"


def _merge(name: str, files: Sequence[SourceFile]) -> SourceFile:
    if len(files) == 1 and files[0].name == name:
        return files[0]
    digests = "".join(f"{file.name} {file.digest}\n" for file in files)
    return SourceFile(
        name=name,
        size=sum(file.size for file in files),
        digest=hashlib.sha256(digests.encode()).hexdigest(),
        num_files=sum(file.num_files for file in files),
        encoding=_join_distinct(file.encoding for file in files),
        encoding_reason=_join_distinct(file.encoding_reason for file in files),
        replaced_bytes=sum(file.replaced_bytes for file in files),
        has_byte_order_mark=any(file.has_byte_order_mark for file in files),
    )


def _join_distinct(values: Iterable[str]) -> str:
    return ", ".join(sorted({part for value in values for part in value.split(", ") if part}))
