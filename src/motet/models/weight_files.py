"""The files that a model names as its weights. A model may come from someone else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def check_weight_files(folder: Path) -> None:
    """Raise a ValueError if a model names weights that are not visible files of its folder.

    The hash with which a client pins a model covers the visible files of the folder, and only these.
    """
    for path in [folder / "config.json", *folder.glob("*.index.json")]:
        for name in _list_weights(path) if path.exists() else ():
            if not isinstance(name, str) or Path(name).name != name or name.startswith("."):
                raise ValueError(
                    f"{path.name} names the weights {str(name)[:80]!r}; expected the name of a file beside it"
                )


def _list_weights(path: Path) -> Iterator[Any]:
    """Yield the files that a JSON file of a model names as weights: the parts of an index, or `transformers_weights`."""
    content = json.loads(path.read_text("utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is no JSON object")
    if "transformers_weights" in content:
        yield content["transformers_weights"]
    parts = content.get("weight_map", {})
    yield from parts.values() if isinstance(parts, dict) else [parts]
