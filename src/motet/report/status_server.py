"""The status page of a served run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from motet.report.page_server import Page, PageSource, start_pages

SOURCE = PageSource("status page", "transport.status", "MOTET_STATUS_TOKEN")
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
    """Serve the status at `bind` (host:port). Return the URL and a function that stops the server."""
    pages = {
        "/": Page("text/html; charset=utf-8", PAGE.encode),
        "/status.json": Page("application/json", lambda: json.dumps(snapshot()).encode()),
    }
    return start_pages(bind, pages, token, SOURCE)
