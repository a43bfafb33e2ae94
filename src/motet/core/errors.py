"""Errors that a user can fix. Each message says what happened, what was expected and what to do."""

from __future__ import annotations


class MotetError(Exception):
    """Base of all errors that are shown as a sentence instead of a traceback."""


class ConfigError(MotetError):
    """A recipe, option or input that cannot work. Raised before training starts."""


class DataError(ConfigError):
    """A corpus, column or row that does not fit the task."""


class PrivacyError(ConfigError):
    """A program tries to read more than its clients agreed to reveal."""


class LayoutError(ConfigError):
    """Two sets of parameters do not match, or a selection of layers matches nothing."""


class WireError(MotetError):
    """Bytes that are not a valid message."""


class RunError(MotetError):
    """A run that started and could not continue."""


SESSION_LOST = "no sum has begun at this client; it must be asked to advertise its keys first."


class SessionLostError(PrivacyError):
    """A client was asked to continue a secure sum that it does not know, for instance because it was restarted.

    The server recognizes the message in the client's reply, and begins the sum again.
    """

    def __init__(self) -> None:
        super().__init__(SESSION_LOST)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the error's class name if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
