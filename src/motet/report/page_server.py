"""Read-only web pages next to a run. Other machines need a token to see them."""

from __future__ import annotations

import hmac
import re
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from motet.core.errors import ConfigError, RunError

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
MAX_CONNECTIONS = 64  # at once; each has a thread of the process that trains
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
    ),
}


class Page(NamedTuple):
    """A page: its media type, and a function that returns its current contents."""

    content_type: str
    render: Callable[[], bytes]


class PageSource(NamedTuple):
    """The names of a page server in messages: its own, the option with its address, and the variable with its token."""

    name: str
    option: str
    token_variable: str


def start_pages(bind: str, pages: Mapping[str, Page], token: str, source: PageSource) -> tuple[str, Callable[[], None]]:
    """Serve pages by their paths at `bind` (host:port). Return the URL and a function that stops the server.

    Every address other than loopback needs a token.
    """
    host, _, port = bind.rpartition(":")
    if host not in LOOPBACK and not token:
        raise ConfigError(
            f"{source.option} is {bind}, which other machines can reach, and there is no token. "
            f"Set {source.token_variable}, or use 127.0.0.1."
        )
    request_class = type("PageRequest", (_PageRequest,), {"pages": pages, "token": token})
    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), request_class)
    except (OSError, ValueError) as error:
        raise RunError(
            f"the {source.name} cannot be served at {bind}: {error}. Use another {source.option}, such as 127.0.0.1:8080."
        ) from None
    server.daemon_threads = True
    _limit_connections(server)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return f"http://{host}:{server.server_address[1]}/", stop


def _limit_connections(server: ThreadingHTTPServer) -> None:
    """Close connections beyond the limit at once."""
    places, start_thread, end = threading.Semaphore(MAX_CONNECTIONS), server.process_request, server.shutdown_request

    def process_request(request: Any, client_address: Any) -> None:
        if places.acquire(blocking=False):
            start_thread(request, client_address)
        else:
            end(request)

    def shutdown_request(request: Any) -> None:
        places.release()
        end(request)

    server.process_request, server.shutdown_request = process_request, shutdown_request  # type: ignore[method-assign]


class _PageRequest(BaseHTTPRequestHandler):
    pages: Mapping[str, Page]
    token: str
    timeout = 10  # seconds; drops connections that send nothing

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        header_token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        token = header_token or parse_qs(url.query).get("token", [""])[0]
        page = self.pages.get(url.path)
        if self.token and not hmac.compare_digest(token.encode(), self.token.encode()):
            self._respond(401, "text/plain", b"A token is required: Authorization: Bearer TOKEN, or ?token=TOKEN\n")
        elif not self.token and not self._names_this_machine():
            self._respond(400, "text/plain", b"Use the address 127.0.0.1 or localhost.\n")
        elif page is not None:
            self._respond(200, page.content_type, page.render())
        else:
            self._respond(404, "text/plain", f"Not found. Pages: {' and '.join(self.pages)}\n".encode())

    def _names_this_machine(self) -> bool:
        """Return whether the browser asked for this machine. A web page could let its own host name point to it."""
        host = self.headers.get("Host", LOOPBACK[0])
        return re.sub(r":\d*$", "", host) in LOOPBACK

    def _respond(self, code: int, content_type: str, body: bytes) -> None:
        self.send_response(code)
        for name, value in {**HEADERS, "Content-Type": content_type, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...
