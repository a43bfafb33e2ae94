"""JSON files that are never half written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from motet.transport.private_files import write_atomically


def write_json(path: Path, value: Any, indent: int | None = 2) -> None:
    write_atomically(path, (json.dumps(value, indent=indent, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a JSON file; None if there is none."""
    return json.loads(path.read_text("utf-8")) if path.exists() else None
