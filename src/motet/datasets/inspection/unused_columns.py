"""The columns of a table that a corpus does not use, and what they look like: clients, groups or dates."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from motet.datasets.inspection.column_guess import USUAL_NAMES
from motet.datasets.inspection.finding import list_first
from motet.datasets.inspection.table_preview import Preview

_SOURCE = re.compile(r"^column (?:'(?P<name>.*)'|number (?P<number>\d+)) \(")  # as the read report names it
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?\b.*|\d\d?[./]\d\d?[./]\d{2,4}\b.*")
MIN_ROWS_PER_CLIENT = 3  # on average
MAX_NAMED = 8


def describe_unused(preview: Preview, sources: Mapping[str, str], is_guess: bool = False) -> str:
    """Return the columns that are not used, such as "id (a different value in every row)". Empty: all are used.

    `sources` are Motet's columns and where they come from, as in the read report. `is_guess`: they may be wrong.
    """
    used = {match["name"] or match["number"] for source in sources.values() if (match := _SOURCE.match(source))}
    if not used:  # not a table with columns of the user's own
        return ""
    roles = {"the clients": "data.client"} if "client" not in sources else {"groups": "data.columns.domain"}
    if is_guess and "label" in sources:
        roles = {"the labels": "data.label", **roles}
    unused = {name: values for name, values in preview.items() if used.isdisjoint(_list_prefixes(name))}
    parts = list(_describe(unused, roles))
    return list_first(parts, MAX_NAMED)


def _list_prefixes(name: str) -> list[str]:
    """Return a column and the objects that it is a field of: answers.text and answers."""
    return [name[:end] for end, character in enumerate(f"{name}.") if character == "."]


def _describe(columns: Preview, roles: Mapping[str, str]) -> Iterator[str]:
    """`roles` are what a column of few values may be, and the settings that say so."""
    for name, values in columns.items():
        distinct = len(set(values))
        if all(map(_DATE.fullmatch, values)):
            yield f"{name} (dates)"
        elif name.lower() in USUAL_NAMES["client"] or _is_repeated(values):
            advice = " or ".join(f"{role}: {shlex.quote(f'{key}={name}')}" for role, key in roles.items())
            yield f"{name} ({distinct} values in the first {len(values)} rows; perhaps {advice})"
        elif distinct == len(values):
            yield f"{name} (a different value in every row)"
        else:
            yield name


def _is_repeated(values: Sequence[str]) -> bool:
    """True for few distinct values that occur again and again."""
    return 2 <= len(set(values)) <= len(values) / MIN_ROWS_PER_CLIENT
