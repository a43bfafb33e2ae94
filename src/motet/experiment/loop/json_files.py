"""JSON files that are never half written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from motet.core.errors import RunError, first_line
from motet.transport.private_files import write_atomically


def write_json(path: Path, value: Any, indent: int | None = 2) -> None:
    write_atomically(path, (json.dumps(value, indent=indent, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a JSON file; None if there is none."""
    return parse_json(path.read_bytes(), path) if path.exists() else None


def parse_json(data: bytes, path: Path) -> Any:
    """Parse JSON of a file, or raise an error that names the file."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RunError(
            f"'{path}' is damaged: {first_line(error)}. Restore it, or run again in another folder."
        ) from None
