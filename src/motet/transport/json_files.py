"""JSON files that are never half written, and that are checked when they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from motet.core.errors import RunError, first_line
from motet.transport.json_shapes import find_mismatch
from motet.transport.private_files import write_atomically

MAX_BYTES = 2**30
ADVICE = "Restore it, or run again in another folder."


def write_json(path: Path, value: Any, indent: int | None = 2) -> None:
    write_atomically(path, (json.dumps(value, indent=indent, ensure_ascii=False) + "\n").encode())


def read_json(path: Path, shape: Any, advice: str = ADVICE) -> Any:
    """Read a JSON file that has the declared structure; None if there is no file.

    `shape` is the type of its content (see `find_mismatch`). If the content is different, an error names the file and
    the entry that is wrong, and ends with `advice`.
    """
    if not path.exists():
        return None
    if not path.is_file() or path.stat().st_size > MAX_BYTES:  # a pipe or a device never ends
        raise RunError(f"'{path}' is no file of at most {MAX_BYTES >> 20} MB. {advice}")
    return parse_json(path.read_bytes(), path, shape, advice)


def parse_json(data: bytes, path: Path, shape: Any = Any, advice: str = ADVICE) -> Any:
    """Parse the JSON of a file, like `read_json`."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RunError(f"'{path}' is damaged: {first_line(error)}. {advice}") from None
    check_json(value, path, shape, advice)
    return value


def check_json(value: Any, path: Path, shape: Any, advice: str = ADVICE) -> None:
    """Raise an error if the content of a JSON file does not have the declared structure."""
    if problem := find_mismatch(value, shape):
        raise RunError(f"'{path}' is damaged: {problem}. {advice}")
