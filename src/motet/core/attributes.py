"""Attributes that a Protocol declares, with a default if they are optional. Classes inherit the Protocol for its defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from motet.core.errors import ConfigError

if TYPE_CHECKING:
    attribute = property
else:

    class attribute:  # noqa: N801 - used as a decorator, like property
        """A read-only attribute that a subclass may replace by a dataclass field, a constant or a property.

        `property` does not work here: a field without a default would take the property itself as its default.
        """

        def __init__(self, default: Any) -> None:
            self.default, self.__doc__ = default, default.__doc__

        def __get__(self, instance: Any, owner: type) -> Any:
            if instance is None:  # a dataclass reads the default of a field from its class
                raise AttributeError(f"{owner.__name__}.{self.default.__name__} is read from an instance")
            return self.default(instance)


def undeclared(instance: object, name: str, example: str) -> ConfigError:
    """Return the error of an instance that lacks a required attribute."""
    return ConfigError(f"{type(instance).__name__} has no {name}; add it to the class, e.g. {example}")


def require_parent(value: object, parent: type, source: str) -> None:
    """Raise an error if `value` does not inherit from a Protocol, which holds its defaults. `source` names the value."""
    if parent not in type(value).__mro__:
        name = type(value).__name__
        raise ConfigError(
            f"{source} is a {name}, which does not inherit from {parent.__name__}; "
            f"write: from {parent.__module__} import {parent.__name__}, and: class Mine({parent.__name__})"
        )
