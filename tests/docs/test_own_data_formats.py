"""The guide to your own data names every format that Motet reads, every mistake and every option for files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from motet.datasets.compression import ARCHIVE_SUFFIXES, DECOMPRESSORS
from motet.datasets.file_formats import FORMATS, HDF5_SUFFIXES, FileFormat
from motet.datasets.inspection.findings import MISTAKE_KINDS

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "own-data.md").read_text("utf-8")
TABLE = {cells[0]: cells for cells in re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|$", GUIDE, re.M)}


@pytest.mark.parametrize("file_format", FORMATS, ids=lambda each: each.name)
def test_every_format_is_in_the_table_with_an_example_that_is_read(file_format: FileFormat) -> None:
    _, names, examples = TABLE[file_format.name]
    assert all(f"`{suffix}`" in names for suffix in file_format.suffixes)
    for example in re.findall(r"\[(\S+?)\]", examples):
        assert re.search(rf"^motet data inspect {re.escape(example)}(?: |$)", GUIDE, re.M), example


def test_every_compression_is_in_the_guide() -> None:
    assert [
        suffix for suffix in (*DECOMPRESSORS, *ARCHIVE_SUFFIXES, *HDF5_SUFFIXES) if f"`{suffix}`" not in GUIDE
    ] == []


def test_every_mistake_is_explained() -> None:
    assert [kind for kind in MISTAKE_KINDS if f"| `{kind}` |" not in GUIDE] == []
