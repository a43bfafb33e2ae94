"""Serve the dashboard: until it is interrupted, or in a thread next to a run."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.core.errors import ConfigError, RunError
from motet.core.install_hint import install_command

if TYPE_CHECKING:
    from uvicorn import Server


@dataclass(frozen=True)
class DashboardOptions:
    """Where the dashboard listens (host:port), and its token; None: a random one."""

    bind: str
    token: str | None = None
    is_open: bool = False  # no token


class Dashboard:
    """A dashboard of the runs in a folder. Its address is taken, and it is ready to be served."""

    def __init__(self, folder: Path, options: DashboardOptions, *, is_new: bool = False) -> None:
        """Listen at the address. `is_new`: a run is about to start in the folder."""
        try:
            from motet.dashboard.access_token import choose_token
            from motet.dashboard.run_catalog import check_folder
            from motet.dashboard.web_app import create_app
            from motet.report.web import read_asset
        except ImportError as error:
            raise ConfigError(
                f"the dashboard needs the package {error.name}. Run: {install_command('dashboard')}"
            ) from None
        host, port = _parse_bind(options.bind)
        token = choose_token(options.token, is_open=options.is_open, host=host)
        if not is_new:
            check_folder(folder)
        read_asset("plotly.js")  # raises an error if plotly is missing
        self.listener = _listen(host, port)
        self._server = _create_server(create_app(folder, token))
        name = f"[{host}]" if ":" in host else host
        self.address = f"http://{name}:{self.listener.getsockname()[1]}/"
        self.url = self.address + (f"?token={token}" if token else "")

    def serve(self) -> None:
        """Serve until the process is interrupted."""
        with suppress(KeyboardInterrupt):
            self._server.run(sockets=[self.listener])

    @contextmanager
    def serve_in_background(self) -> Iterator[None]:
        """Serve while the block runs."""
        thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self.listener]}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.should_exit = True
            thread.join(timeout=5)


def _create_server(app: Any) -> Server:
    import uvicorn

    from motet.dashboard.http_connection import LimitedConnection

    options: Any = {"log_level": "error", "access_log": False, "server_header": False, "lifespan": "off", "ws": "none"}
    return uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=2, http=LimitedConnection, **options))


def _parse_bind(bind: str) -> tuple[str, int]:
    host, separator, port = bind.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"the dashboard's address is '{bind}'; expected host:port, such as 127.0.0.1:8895.")
    return host.strip("[]"), int(port)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        raise RunError(
            f"the dashboard cannot listen at {host}:{port}: {error.strerror or error}. Choose another address or port."
        ) from None
    return listener
