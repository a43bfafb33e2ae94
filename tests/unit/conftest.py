"""Fixtures for unit tests."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

WriteFile = Callable[..., Path]


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    """Write a file in the temporary folder; compress it if its name ends in .gz."""

    def write(name: str, text: str, encoding: str = "utf-8") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = text.encode(encoding)
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return path

    return write
