"""The two halves of the app. Both come from Motet."""

from motet.flower import client_app, server_app

__all__ = ["client_app", "server_app"]
