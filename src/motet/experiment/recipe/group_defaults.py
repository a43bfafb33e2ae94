"""Groups of clients. Sections that a group leaves out come from the top level of the recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motet.core.errors import ConfigError
from motet.core.suggestions import did_you_mean

# The keys that name a section's entry. A group that names another entry inherits only the keys in `INHERITED`.
NAME_KEYS = {"data": ("name", "path"), "model": ("name",), "task": ("type",), "partition": ("type",)}
INHERITED = {
    "data": ("limit", "test_limit", "test_share", "resplit", "public_share", "dev_share"),
    "model": ("max_tokens",),
    "task": (),
    "partition": (),
}
GROUP_KEYS = ("name", "clients", "corpus", *NAME_KEYS)


def expand_groups(top_level: Mapping[str, Any], groups: Any) -> list[dict[str, Any]]:
    """Return each group with all of its sections, as nested settings."""
    if not isinstance(groups, Sequence) or isinstance(groups, str) or not all(isinstance(g, Mapping) for g in groups):
        raise ConfigError(
            f"groups is {groups!r}; expected a list, such as [{{clients: 2, model: tiny}}, {{clients: 3}}]."
        )
    return [_expand_group(top_level, group, f"groups[{i}]") for i, group in enumerate(groups)]


def _expand_group(top_level: Mapping[str, Any], group: Mapping[str, Any], path: str) -> dict[str, Any]:
    if unknown := next((name for name in group if name not in GROUP_KEYS), None):
        hint = did_you_mean(str(unknown), GROUP_KEYS)
        raise ConfigError(f"{path}: unknown option '{unknown}'; it takes {', '.join(GROUP_KEYS)}.{hint}")
    settings = dict(group)
    if "corpus" in settings:  # {corpus: agnews} for {data: {name: agnews}}
        settings["data"] = {"name": settings.pop("corpus"), **_parse_section("data", settings.get("data"), path)}
    expanded: dict[str, Any] = {name: settings[name] for name in ("name", "clients") if name in settings}
    for section in NAME_KEYS:
        defaults = _parse_section(section, top_level.get(section), section)
        own = _parse_section(section, settings.get(section), f"{path}.{section}")
        expanded[section] = _apply_defaults(section, defaults, own)
    return expanded


def _parse_section(name: str, settings: Any, path: str) -> dict[str, Any]:
    """Return a section as a dictionary; `model: tiny` is short for `model: {name: tiny}`."""
    if settings is None:
        return {}
    if isinstance(settings, str):
        return {NAME_KEYS[name][0]: settings}
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{path} is {settings!r}; expected a name, or a section with options.")
    return dict(settings)


def _apply_defaults(section: str, defaults: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    names_another = any(key in settings and settings[key] != defaults.get(key) for key in NAME_KEYS[section])
    if names_another:
        defaults = {key: value for key, value in defaults.items() if key in INHERITED[section]}
    return {**defaults, **settings}
