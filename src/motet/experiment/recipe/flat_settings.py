"""Settings as one value for each key, `section.key`, to show and to compare them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested settings as `section.key` -> value, both as text."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten_settings(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(value, ensure_ascii=False, default=str).strip('"')
    return flat


def diff_settings(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the settings that differ, with both values. The name of the recipe does not count."""
    for key in dict.fromkeys([*first, *second]):
        if first.get(key) != second.get(key) and key != "recipe":
            yield key, first.get(key, "–"), second.get(key, "–")
