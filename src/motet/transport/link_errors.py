"""Errors of a link that say whether it helps to try again."""

from __future__ import annotations


class TlsError(ConnectionError):
    """The other side can be reached, but TLS fails."""


class UntrustedServerError(TlsError):
    """TLS fails with these settings of the client, however often it tries."""


class RejectedLoginError(ConnectionError):
    """The broker rejects the user or the password, however often the client tries."""
