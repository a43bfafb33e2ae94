"""A small page that shows where a served run stands. It changes nothing, and beyond this machine it asks for a token."""

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
SAFE = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'",
}
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Motet</title>
<meta name="viewport" content="width=device-width">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.3rem}dt{color:#666}dd{margin:0 0 .6rem}progress{width:100%}
@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}dt{color:#999}}</style>
<h1 id="title">Motet</h1><progress id="bar" value="0" max="1" aria-label="rounds done"></progress><dl id="facts"></dl>
<script>
const mega = n => (n / 1e6).toFixed(1) + " MB";
const facts = s => ({
  "state": s.state, "round": s.rounds ? `${s.done ?? 0} of ${s.rounds} done` : "",
  "this round": s.cohort ? `${s.answered ?? 0} of ${s.cohort} clients have answered` : "",
  "connected": (s.connected || []).join(", "),
  "waited for": Object.entries(s.waited_for || {}).map(([c, t]) => `${c} (${Math.round(t)} s)`).join(", "),
  "away": (s.away || []).join(", "),
  "scores": Object.entries(s.scores || {}).map(([n, v]) => `${n} ${v.toFixed(3)}`).join(", "),
  "bytes": s.bytes_up === undefined ? "" : `${mega(s.bytes_up)} up, ${mega(s.bytes_down)} down`,
  "refused messages": Object.entries(s.refused || {}).map(([c, n]) => `${c}: ${n}`).join(", "),
});
async function look() {
  try {
    const s = await (await fetch("status.json" + location.search)).json();
    document.getElementById("title").textContent = "Motet: " + (s.run || "");
    document.getElementById("bar").value = s.rounds ? (s.done || 0) / s.rounds : 0;
    const list = document.getElementById("facts");
    list.replaceChildren();
    for (const [name, said] of Object.entries(facts(s))) if (said) {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = name; dd.textContent = said; list.append(dt, dd);
    }
  } catch { document.getElementById("title").textContent = "Motet: the server does not answer"; }
  setTimeout(look, 2000);
}
look();
</script></html>
"""


def start_status_server(bind: str, now: Callable[[], Mapping[str, Any]], token: str) -> tuple[str, Callable[[], None]]:
    """Show the status at `bind` (host:port); its address, and what ends it. Beyond this machine a token is asked for."""
    host, _, port = bind.rpartition(":")
    if host not in LOOPBACK and not token:
        raise ConfigError(
            f"transport.status is {bind}, which others can see; set MOTET_STATUS_TOKEN, or use 127.0.0.1."
        )
    visit = type("Visit", (_Page,), {"now": staticmethod(now), "token": token})
    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), visit)
    except (OSError, ValueError) as error:
        raise RunError(f"the status page cannot be shown at {bind}: {error}") from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def end() -> None:
        server.shutdown()
        server.server_close()

    return f"http://{host}:{server.server_address[1]}/", end


class _Page(BaseHTTPRequestHandler):
    """One visit."""

    now: Callable[[], Mapping[str, Any]]
    token: str
    timeout = 10  # seconds for somebody who says nothing

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        given = (
            self.headers.get("Authorization", "").removeprefix("Bearer ") or parse_qs(place.query).get("token", [""])[0]
        )
        if self.token and not hmac.compare_digest(given.encode(), self.token.encode()):
            self._say(401, "text/plain", b"a token is needed: Authorization: Bearer ..., or ?token=...\n")
        elif place.path == "/status.json":
            self._say(200, "application/json", json.dumps(type(self).now()).encode())
        elif place.path == "/":
            self._say(200, "text/html; charset=utf-8", PAGE.encode())
        else:
            self._say(404, "text/plain", b"there is / and /status.json\n")

    def _say(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        for name, value in {**SAFE, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...
