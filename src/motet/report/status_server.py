"""A read-only web page with the status of a served run. Other machines need a token to see it."""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from motet.core.errors import ConfigError, RunError

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
    ),
}
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Motet</title>
<meta name="viewport" content="width=device-width">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.3rem}dt{color:#666}dd{margin:0 0 .6rem}progress{width:100%}
@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}dt{color:#999}}</style>
<h1 id="title">Motet</h1><progress id="bar" value="0" max="1" aria-label="rounds done"></progress><dl id="facts"></dl>
<script>
const megabytes = n => (n / 1e6).toFixed(1) + " MB";
const describe = s => ({
  "state": s.state,
  "rounds": s.rounds ? `${s.done ?? 0} of ${s.rounds} done` : "",
  "this round": s.cohort ? `${s.answered ?? 0} of ${s.cohort} clients answered` : "",
  "connected": (s.connected || []).join(", "),
  "waiting for": Object.entries(s.waited_for || {}).map(([c, t]) => `${c} (${Math.round(t)} s)`).join(", "),
  "missing": (s.away || []).join(", "),
  "scores": Object.entries(s.scores || {}).map(([n, v]) => `${n} ${v.toFixed(3)}`).join(", "),
  "bytes": s.bytes_up === undefined ? "" : `${megabytes(s.bytes_up)} up, ${megabytes(s.bytes_down)} down`,
  "rejected messages": Object.entries(s.refused || {}).map(([c, n]) => `${c}: ${n}`).join(", "),
});
async function refresh() {
  try {
    const status = await (await fetch("status.json" + location.search)).json();
    document.getElementById("title").textContent = "Motet: " + (status.run || "");
    document.getElementById("bar").value = status.rounds ? (status.done || 0) / status.rounds : 0;
    const list = document.getElementById("facts");
    list.replaceChildren();
    for (const [name, text] of Object.entries(describe(status))) if (text) {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = name; dd.textContent = text; list.append(dt, dd);
    }
  } catch { document.getElementById("title").textContent = "Motet: the server does not respond"; }
  setTimeout(refresh, 2000);
}
refresh();
</script></html>
"""


def start_status_server(
    bind: str, snapshot: Callable[[], Mapping[str, Any]], token: str
) -> tuple[str, Callable[[], None]]:
    """Serve the status at `bind` (host:port). Return the URL and a function that stops the server.

    Every address other than loopback needs a token.
    """
    host, _, port = bind.rpartition(":")
    if host not in LOOPBACK and not token:
        raise ConfigError(
            f"transport.status is {bind}, which other machines can reach, and there is no token. "
            "Set MOTET_STATUS_TOKEN, or use 127.0.0.1."
        )
    request_class = type("StatusRequest", (_StatusRequest,), {"snapshot": staticmethod(snapshot), "token": token})
    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), request_class)
    except (OSError, ValueError) as error:
        raise RunError(f"the status page cannot be served at {bind}: {error}. Use another transport.status.") from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return f"http://{host}:{server.server_address[1]}/", stop


class _StatusRequest(BaseHTTPRequestHandler):
    snapshot: Callable[[], Mapping[str, Any]]
    token: str
    timeout = 10  # seconds; drops connections that send nothing

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        header_token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        token = header_token or parse_qs(url.query).get("token", [""])[0]
        if self.token and not hmac.compare_digest(token.encode(), self.token.encode()):
            self._respond(401, "text/plain", b"A token is required: Authorization: Bearer TOKEN, or ?token=TOKEN\n")
        elif url.path == "/status.json":
            self._respond(200, "application/json", json.dumps(type(self).snapshot()).encode())
        elif url.path == "/":
            self._respond(200, "text/html; charset=utf-8", PAGE.encode())
        else:
            self._respond(404, "text/plain", b"Not found. Pages: / and /status.json\n")

    def _respond(self, code: int, content_type: str, body: bytes) -> None:
        self.send_response(code)
        for name, value in {**HEADERS, "Content-Type": content_type, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...
