"""The classes of messages by name, also those of other packages."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points

from motet.core.messages import MESSAGES

_GROUPS = ("motet.algorithms", "motet.tasks", "motet.codecs")  # components whose messages are sent or stored


def find_message(name: str) -> type | None:
    """Return the class of a message. A client may receive the loss of a task before it has imported the task's package."""
    if name not in MESSAGES:
        _import_components()
    return MESSAGES.get(name)


@cache
def _import_components() -> None:
    for point in (point for group in _GROUPS for point in entry_points(group=group)):
        with suppress(Exception):  # whatever is wrong with a package, its error is raised where the package is used
            point.load()
