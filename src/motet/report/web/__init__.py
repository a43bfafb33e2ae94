"""The HTML pages of runs and benchmarks. plotly draws them in the browser, without network access.

A report has everything in one file. The live page of the dashboard is the same page with the same scripts, which it loads
from the dashboard as files, and it asks the dashboard for its data.
"""

from __future__ import annotations

import functools
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError
from motet.core.install_hint import install_command

STYLE = "page.css"
PLOTLY = "plotly.js"
PAGE_SCRIPTS = ("base.js", "page.js", "plots.js", "curves.js", "clients.js", "tables.js", "live.js")
LIST_SCRIPTS = ("base.js", "list.js")


def write_report(
    path: Path, title: str, runs: Sequence[Mapping[str, Any]], benchmark: Mapping[str, Any] | None = None
) -> None:
    """Write the report of runs or of a benchmark to one HTML file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(build_report(title, runs, benchmark), "utf-8")


def build_report(
    title: str,
    runs: Sequence[Mapping[str, Any]],
    benchmark: Mapping[str, Any] | None = None,
    comparison: str = "",
) -> str:
    """Return a page with plotly, the style sheet, the scripts and the data in it. `comparison` is about two runs."""
    scripts = "\n".join(f"<script>{read_asset(name)}</script>" for name in (PLOTLY, *PAGE_SCRIPTS))
    style = f"<style>{read_asset(STYLE)}</style>"
    data = {"title": title, "runs": list(runs), "benchmark": benchmark, "comparison": comparison}
    return _fill("page.html", title, style, scripts, data)


def build_live_page(title: str, live: Mapping[str, Any]) -> str:
    """Return the same page without data. `live` says what it shows: names of runs, or a benchmark."""
    return _fill_live("page.html", title, (PLOTLY, *PAGE_SCRIPTS), {"title": title, "live": live})


def build_list_page(title: str) -> str:
    """Return the page that lists all runs."""
    return _fill_live("list.html", title, LIST_SCRIPTS, {"title": title})


def read_asset(name: str) -> str:
    """Read a file of this package, or plotly's script."""
    if name == PLOTLY:
        return _load_plotly()
    return resources.files("motet.report.web").joinpath(name).read_text("utf-8")


def _fill_live(template: str, title: str, scripts: Sequence[str], data: Mapping[str, Any]) -> str:
    folder = f"assets/{_assets_version()}"
    elements = "\n".join(f'<script src="{folder}/{name}"></script>' for name in scripts)
    return _fill(template, title, f'<link rel="stylesheet" href="{folder}/{STYLE}">', elements, data)


def _fill(template: str, title: str, style: str, scripts: str, data: Mapping[str, Any]) -> str:
    page = read_asset(template)
    parts = {
        "title": html.escape(_make_valid(title)),
        "style": style,
        "data": _escape_json(dump_json(data)),
        "scripts": scripts,
    }
    for name, text in parts.items():
        page = page.replace(f"<!--{name}-->", text)
    return page


@functools.cache
def _assets_version() -> str:
    """Return a text that changes with the assets, so that browsers can keep them."""
    texts = [read_asset(name) for name in (STYLE, *PAGE_SCRIPTS, *LIST_SCRIPTS)]
    return hashlib.sha256("".join([*texts, metadata.version("plotly")]).encode()).hexdigest()[:12]


def dump_json(value: Any) -> str:
    """Return JSON that browsers can read: numbers that are not finite, as of a diverged run, become null."""
    try:
        return _make_valid(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    except ValueError:
        return dump_json(_replace_nan(value))


def _make_valid(text: str) -> str:
    """Return a text that can be written as UTF-8. Names of files that are not UTF-8 have half characters."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _replace_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _replace_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _escape_json(text: str) -> str:
    """Return the same JSON without characters that have a meaning in HTML.

    Inside a script element, "</script>" would end it, and "<!--<script>" would make the rest of the page part of it.
    """
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _load_plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ConfigError(
            f"the report needs plotly, which is not installed. Run: {install_command('report')}"
        ) from None
    script: str = get_plotlyjs()
    return script
