"""Algorithms, tasks, datasets, partitions, codecs and trackers of other packages, found by their entry points.

A function under `[project.entry-points."motet.algorithms"]` of a package appears in recipes and in `motet list`.
It is imported when it is used, so that a broken package stops nobody who does not use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from motet.core.errors import ConfigError, first_line
from motet.core.suggestions import name_choices


@dataclass(frozen=True)
class Registry:
    """Motet's own entries of one kind and, by the entry points of `group`, those of other packages.

    An entry point cannot replace one of Motet's own entries.
    """

    group: str
    builtin: Mapping[str, Any]

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self._entry_points()

    def __iter__(self) -> Iterator[str]:
        yield from self.builtin
        yield from self._entry_points()

    def get(self, name: Any, path: str) -> Any:
        """Return an entry. `path` is the recipe key that holds its name, for the error message."""
        if name in self.builtin:
            return self.builtin[name]
        points = self._entry_points().get(name)
        if points is None:
            see = f"motet list {self.group.removeprefix('motet.')}"
            raise ConfigError(f"{path}: there is no '{name}'{name_choices(str(name), self, see=see)}")
        if len(points) > 1:
            packages = " and ".join(sorted(_package(point) for point in points))
            raise ConfigError(f"{path}: '{name}' is offered by several packages ({packages}); uninstall all but one.")
        return self._load(points[0], path)

    def describe(self) -> dict[str, Any]:
        """Return all entries, with a sentence in place of an entry that cannot be imported."""
        described: dict[str, Any] = dict(self.builtin)
        for name in self._entry_points():
            try:
                described[name] = self.get(name, self.group)
            except ConfigError as error:
                described[name] = f"cannot be used: {error}"
        return described

    def _load(self, point: EntryPoint, path: str) -> Any:
        try:
            entry = point.load()
        except Exception as error:  # another package's code may fail in any way
            raise ConfigError(
                f"{path}: '{point.name}' of the package {_package(point)} cannot be imported from {point.value} "
                f"({type(error).__name__}: {first_line(error)}); fix or uninstall that package."
            ) from error
        if not callable(entry):
            raise ConfigError(
                f"{path}: '{point.name}' of the package {_package(point)} is a {type(entry).__name__}; expected a "
                f"function. Correct {point.value} in its pyproject.toml."
            )
        return entry

    def _entry_points(self) -> dict[str, list[EntryPoint]]:
        points: dict[str, list[EntryPoint]] = {}
        for point in sorted(entry_points(group=self.group), key=lambda point: point.name):
            if point.name not in self.builtin and point not in points.get(point.name, []):
                points.setdefault(point.name, []).append(point)
        return points


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module
