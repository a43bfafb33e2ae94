"""One HTML page that needs nothing beside it: numbers, pictures and what they say in words."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_STYLE = """
:root { color-scheme: light dark; --ink: #22303c; --soft: #5b6b7a; --line: #d9e0e6; --paper: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9fb0bf; --line: #35424e; --paper: #12181e; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 0 0 .3rem; }
p, figcaption { color: var(--soft); margin: .2rem 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: .25rem .9rem .25rem 0; text-align: left;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
.numbers td:not(:first-child), .numbers th:not(:first-child) { text-align: right; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1.5rem; }
figure { margin: 0; } img { width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 6px; }
code { font-size: .9em; overflow-wrap: anywhere; }
@media (max-width: 30rem) { .pictures { grid-template-columns: 1fr; } }
"""


@dataclass(frozen=True)
class PageFigure:
    """A PNG with a heading and a sentence that says what is to be seen in it, for those who cannot."""

    title: str
    path: Path
    says: str


@dataclass(frozen=True)
class PageTable:
    """A first row of headings, then rows of text."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def write_html_page(
    path: Path, title: str, lead: str, table: PageTable, pictures: Sequence[PageFigure], facts: Mapping[str, str]
) -> None:
    """All of it in one file."""
    seen = html.escape
    rows = "".join(f"<tr>{''.join(f'<td>{seen(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    head = "".join(f'<th scope="col">{seen(cell)}</th>' for cell in table.head)
    body = [
        f"<h1>{seen(title)}</h1><p>{seen(lead)}</p>",
        f'<table class="numbers"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>',
        f'<div class="pictures">{"".join(map(_figure, pictures))}</div>',
        "<h2>How it was made</h2><table><tbody>",
        "".join(f"<tr><td>{seen(name)}</td><td><code>{seen(value)}</code></td></tr>" for name, value in facts.items()),
        "</tbody></table>",
    ]
    head_ = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{seen(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
    )
    path.write_text(f"{head_}<body>{''.join(body)}</body></html>\n", "utf-8")


def _figure(picture: PageFigure) -> str:
    inside = base64.b64encode(picture.path.read_bytes()).decode()
    said = html.escape(picture.says, quote=True)
    return (
        f'<figure><h2>{html.escape(picture.title)}</h2><img src="data:image/png;base64,{inside}" alt="{said}">'
        f"<figcaption>{said}</figcaption></figure>"
    )
