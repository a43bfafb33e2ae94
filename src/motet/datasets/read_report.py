"""A read report: which files a corpus was read from, what was dropped or changed on the way, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

UNKNOWN_FORMAT = "unknown format"
GUESSED = "guessed because it is not UTF-8"
MAX_EXAMPLES = 3  # positions of dropped rows that a report names for each reason


@dataclass(frozen=True)
class SourceFile:
    """A file that was read. If `num_files` is larger than 1, all files that were read below a folder."""

    name: str  # relative to data.path; the name of a folder ends in a slash
    size: int  # bytes on disk
    digest: str  # SHA-256 of the bytes on disk; for a folder, of the names and digests of its files
    num_files: int = 1
    encoding: str = ""  # empty for binary formats
    encoding_reason: str = ""  # how the encoding was determined
    replaced_bytes: int = 0  # bytes that are invalid in the encoding
    has_byte_order_mark: bool = False  # it was removed

    @property
    def is_encoding_guessed(self) -> bool:
        return self.encoding_reason == GUESSED


@dataclass(frozen=True)
class DroppedRows:
    """Rows that were dropped for one reason."""

    reason: str  # a plural noun phrase: "rows with missing columns"
    count: int
    examples: tuple[str, ...] = ()  # where the first of them are: "train.tsv, line 7"


@dataclass(frozen=True)
class ReadReport:
    """What a reader did. Every corpus has one; it is stored with the corpus, and sampling keeps it."""

    origin: str = ""  # where the rows come from if not from files: a package, the hub, a generator
    files: tuple[SourceFile, ...] = ()
    ignored_files: tuple[str, ...] = ()  # names with a reason: "README.md (documentation)"
    num_rows: int = 0  # rows in the files: the rows of the whole corpus and the dropped rows
    dropped: tuple[DroppedRows, ...] = ()
    changes: Mapping[str, int] = field(default_factory=dict)  # what was repaired, and how often
    columns: Mapping[str, str] = field(default_factory=dict)  # column of the corpus -> where it comes from, and why
    task_reason: str = ""  # why the corpus has its task
    unused_columns: tuple[str, ...] = ()  # of the files
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # notes that a user should see before training

    @property
    def drop_counts(self) -> dict[str, int]:
        """The number of dropped rows for each reason."""
        return {rows.reason: rows.count for rows in self.dropped}

    @property
    def num_dropped(self) -> int:
        return sum(rows.count for rows in self.dropped)

    @property
    def replaced_bytes(self) -> int:
        return sum(file.replaced_bytes for file in self.files)

    @property
    def summary(self) -> str:
        """One line: the files or the origin, what was dropped, and what was changed."""
        parts = [", ".join(file.name for file in self.files) or self.origin]
        for title, counts in (("dropped", self.drop_counts), ("changed", self.changes)):
            if counts:
                parts.append(f"{title}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))
        return "; ".join(part for part in parts if part)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> ReadReport:
        return ReadReport.from_dict(json.loads(text))

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> ReadReport:
        names = ("ignored_files", "unused_columns", "notes", "warnings")
        tuples: dict[str, Any] = {name: tuple(values.get(name, ())) for name in names}
        tuples["files"] = tuple(SourceFile(**file) for file in values.get("files", ()))
        tuples["dropped"] = tuple(
            DroppedRows(**{**rows, "examples": tuple(rows.get("examples", ()))}) for rows in values.get("dropped", ())
        )
        return ReadReport(**{**values, **tuples})
