"""A file of a user's own data, with the options for reading it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from motet.datasets.compression import strip_compression_suffix
from motet.datasets.read_log import ReadLog
from motet.datasets.text_encoding import TextEncoding, detect_encoding
from motet.datasets.text_files import read_blocks, read_lines, read_text

GROUP_COLUMNS = ("client", "domain")  # a test row needs none
NO_GROUP = ""  # of a test row that is only in the global test set


@dataclass(frozen=True)
class ReadOptions:
    """How to read the user's own files. None: determine it from the file."""

    column_names: Mapping[str, str | None] = field(default_factory=dict)  # Motet's name -> name or number in the file
    task: str | None = None
    encoding: str | None = None
    delimiter: str | None = None
    quoting: str = "auto"  # auto: csv for .csv files, none for .tsv files
    header: bool | None = None
    sheet: str | None = None
    files: str | None = None  # a pattern for the names of the files to read in a folder
    repair_tags: bool = False

    @property
    def configured_columns(self) -> dict[str, str]:
        return {name: column for name, column in self.column_names.items() if column is not None}


@dataclass(frozen=True)
class DataFile:
    """One file. Reading it is recorded in the log."""

    path: Path
    options: ReadOptions
    log: ReadLog
    constants: Mapping[str, str] = field(default_factory=dict)  # columns with the same value in all rows
    assumed_encoding: TextEncoding | None = None  # used instead of reading the whole file to determine it

    def needs(self, name: str) -> bool:
        """False for a column that a test file may lack."""
        return self.constants.get(name) != NO_GROUP

    @property
    def name(self) -> str:
        """The name in error messages and in the report."""
        return self.log.relative_name(self.path)

    @property
    def suffix(self) -> str:
        """The suffix in lower case, without compression: `.csv` for `A.CSV.gz`."""
        return strip_compression_suffix(self.path).suffix.lower()

    @property
    def stem(self) -> str:
        """The name without the suffixes of format and compression."""
        return strip_compression_suffix(self.path).stem

    @cached_property
    def encoding(self) -> TextEncoding:
        return self.assumed_encoding or detect_encoding(self.path, self.name, self.options.encoding)

    def read_blocks(self, may_cut_lines: bool = False) -> Iterator[str]:
        return read_blocks(self.path, self.log, self.encoding, may_cut_lines)

    def read_lines(self) -> Iterator[tuple[int, str]]:
        return read_lines(self.path, self.log, self.encoding)

    def read_text(self) -> str:
        return read_text(self.path, self.log, self.encoding)
