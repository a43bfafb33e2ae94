"""Groups: clients with a task, a model or a corpus of their own. What a group does not say is as at the recipe's top level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motet.core.errors import ConfigError, did_you_mean

# By what an entry is known, and what is kept of the top level's section where a group names another entry.
NAMED = {"data": ("name", "path"), "model": ("name",), "task": ("type",), "partition": ("type",)}
KEPT = {
    "data": ("limit", "test_limit", "test_share", "resplit", "public_share", "dev_share"),
    "model": ("max_tokens",),
    "task": (),
    "partition": (),
}
TAKEN = ("name", "clients", "corpus", *NAMED)


def spelt_out(top: Mapping[str, Any], given: Any) -> list[dict[str, Any]]:
    """Each group with all its sections, as nested options."""
    if not isinstance(given, Sequence) or isinstance(given, str) or not all(isinstance(g, Mapping) for g in given):
        raise ConfigError(
            f"groups is {given!r}; expected a list, such as [{{clients: 2, model: tiny}}, {{clients: 3}}]."
        )
    return [_spelt_out(top, group, f"groups[{i}]") for i, group in enumerate(given)]


def _spelt_out(top: Mapping[str, Any], group: Mapping[str, Any], where: str) -> dict[str, Any]:
    if odd := next((name for name in group if name not in TAKEN), None):
        raise ConfigError(
            f"{where}: unknown option '{odd}'; it takes {', '.join(TAKEN)}.{did_you_mean(str(odd), TAKEN)}"
        )
    said = dict(group)
    if "corpus" in said:  # {corpus: agnews} for {data: {name: agnews}}
        said["data"] = {"name": said.pop("corpus"), **_section("data", said.get("data"), where)}
    found: dict[str, Any] = {name: said[name] for name in ("name", "clients") if name in said}
    for section in NAMED:
        above = _section(section, top.get(section), section)
        found[section] = _below(section, above, _section(section, said.get(section), f"{where}.{section}"))
    return found


def _section(name: str, given: Any, where: str) -> dict[str, Any]:
    """A section given by name alone (model: tiny) is a section with that name."""
    if given is None:
        return {}
    if isinstance(given, str):
        return {NAMED[name][0]: given}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} is {given!r}; expected a name, or a section with options.")
    return dict(given)


def _below(section: str, above: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    another = any(key in given and given[key] != above.get(key) for key in NAMED[section])
    kept = {k: v for k, v in above.items() if k in KEPT[section]} if another else above
    return {**kept, **given}
