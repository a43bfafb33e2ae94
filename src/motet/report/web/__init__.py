"""A self-contained HTML report of runs or of a benchmark. plotly draws it in the browser, without network access."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError
from motet.core.install_hint import install_command


def write_report(
    path: Path, title: str, runs: Sequence[Mapping[str, Any]], benchmark: Mapping[str, Any] | None = None
) -> None:
    """Write plotly, the style sheet, the scripts and the data as JSON into one HTML file."""
    data = {"title": title, "runs": list(runs), "benchmark": benchmark}
    scripts = _read("page.js") + _read("figures.js") + _read("tables.js")
    parts = {
        "title": html.escape(title),
        "style": _read("page.css"),
        "plotly": _load_plotly(),
        "script": f"{scripts}\ninitialize();\n",
        "data": _escape_json(json.dumps(data, ensure_ascii=False, separators=(",", ":"))),
    }
    page = _read("page.html")
    for name, text in parts.items():
        page = page.replace(f"<!--{name}-->", text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, "utf-8")


def _escape_json(text: str) -> str:
    """Return the same JSON without characters that have a meaning in HTML.

    Inside a script element, "</script>" would end it, and "<!--<script>" would make the rest of the page part of it.
    """
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _read(name: str) -> str:
    return resources.files("motet.report.web").joinpath(name).read_text("utf-8")


def _load_plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ConfigError(
            f"the report needs plotly, which is not installed. Run {install_command('report')}."
        ) from None
    script: str = get_plotlyjs()
    return script
