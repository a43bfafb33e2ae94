"""One self-contained HTML page about runs or a benchmark: drawn by plotly in the reader's browser, with no network."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError


def write_report(
    path: Path, title: str, runs: Sequence[Mapping[str, Any]], benchmark: Mapping[str, Any] | None = None
) -> None:
    """Everything in one file: plotly, our style and script, and the numbers as JSON."""
    told = {"title": title, "runs": list(runs), "benchmark": benchmark}
    parts = {
        "title": html.escape(title),
        "style": _file("page.css"),
        "plotly": _plotly(),
        "script": _file("page.js") + _file("figures.js") + _file("tables.js") + "\nbegin();\n",
        # in a script element only "</" could end it; JSON may spell it with a backslash
        "told": json.dumps(told, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/"),
    }
    page = _file("page.html")
    for name, text in parts.items():
        page = page.replace(f"<!--{name}-->", text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, "utf-8")


def _file(name: str) -> str:
    return resources.files("motet.report.web").joinpath(name).read_text("utf-8")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ConfigError(
            "the page is drawn by plotly, which is not installed; run: pip install 'motet[report]'"
        ) from None
    found: str = get_plotlyjs()
    return found
