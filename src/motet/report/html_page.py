"""A self-contained HTML page with a table, figures and captions."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_STYLE = """
:root { color-scheme: light dark; --text: #22303c; --muted: #5b6b7a; --border: #d9e0e6; --background: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --muted: #9fb0bf; --border: #35424e; --background: #12181e; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--background); max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 0 0 .3rem; }
p, figcaption { color: var(--muted); margin: .2rem 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: .25rem .9rem .25rem 0; text-align: left;
  border-bottom: 1px solid var(--border); font-variant-numeric: tabular-nums; }
.numbers td:not(:first-child), .numbers th:not(:first-child) { text-align: right; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1.5rem; }
figure { margin: 0; }
img { width: 100%; height: auto; background: #fff; border: 1px solid var(--border); border-radius: 6px; }
code { font-size: .9em; overflow-wrap: anywhere; }
@media (max-width: 30rem) { .figures { grid-template-columns: 1fr; } }
"""


@dataclass(frozen=True)
class PageFigure:
    """A PNG with a title and a caption. The caption describes the figure in words, also for screen readers."""

    title: str
    path: Path
    caption: str


@dataclass(frozen=True)
class PageTable:
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def write_html_page(
    path: Path, title: str, lead: str, table: PageTable, figures: Sequence[PageFigure], facts: Mapping[str, str]
) -> None:
    """Write a page with a table, figures and facts to one file, with the figures embedded."""
    escape = html.escape
    head = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
    )
    headings = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in table.headings)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    fact_rows = "".join(
        f"<tr><td>{escape(name)}</td><td><code>{escape(value)}</code></td></tr>" for name, value in facts.items()
    )
    body = [
        f"<h1>{escape(title)}</h1><p>{escape(lead)}</p>",
        f'<table class="numbers"><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table>',
        f'<div class="figures">{"".join(map(_figure_html, figures))}</div>',
        f"<h2>How it was made</h2><table><tbody>{fact_rows}</tbody></table>",
    ]
    path.write_text(f"{head}<body>{''.join(body)}</body></html>\n", "utf-8")


def _figure_html(figure: PageFigure) -> str:
    image = base64.b64encode(figure.path.read_bytes()).decode()
    caption = html.escape(figure.caption, quote=True)
    return (
        f'<figure><h2>{html.escape(figure.title)}</h2><img src="data:image/png;base64,{image}" alt="{caption}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )
