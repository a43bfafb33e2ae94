"""Write result tables into a Markdown document, between the markers that name their suite and table.

    <!-- motet bench fednlp partitions -->
    … replaced …
    <!-- end -->

The figures of the tables are copied to `figures`, next to the document.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from motet.benchmark.benchmark_folder import (
    QUICK_TITLE,
    QUICK_WARNING,
    Benchmark,
    bench_command,
    list_machines,
    write_overview,
)
from motet.benchmark.overview import FIGURES, OVERVIEW
from motet.benchmark.render import describe_tests, fold, render_legend, render_markdown
from motet.benchmark.result_tables import ResultTable
from motet.core.errors import ConfigError
from motet.missing_paths import describe_missing
from motet.transport.private_files import write_atomically

_FOLDED_FIGURES = {"scores": "Scores, worst tenth of the clients and megabytes by setting"}
_SECTION = r"(<!-- motet bench {suite} {table} -->\n).*?(<!-- end -->)"


def fill_markdown_tables(path: Path, benchmark: Benchmark, tables: Sequence[ResultTable]) -> str:
    """Fill in every table that the document has markers for. Return a message about what was filled in."""
    if not path.exists():
        raise ConfigError(f"--into: {describe_missing(path)} Create it, with a marker for each table.")
    document, suite = path.read_text("utf-8"), benchmark.suite.name
    filled = []
    for name in (*(table.name for table in tables), OVERVIEW):
        section = re.compile(_SECTION.format(suite=re.escape(suite), table=re.escape(name)), re.S)
        if section.search(document):
            table = next((table for table in tables if table.name == name), None)
            text = _overview_text(path, benchmark, tables) if table is None else _section_text(path, benchmark, table)
            document = section.sub(lambda match, text=text: f"{match[1]}\n{text}\n\n{match[2]}", document)  # type: ignore[misc]
            filled.append(name)
    write_atomically(path, document.encode())
    if not filled:
        return f"{path} has no marker for a table of {suite}. Add: <!-- motet bench {suite} TABLE --> … <!-- end -->"
    return f"{path}: filled in {', '.join(filled)}."


def _section_text(path: Path, benchmark: Benchmark, table: ResultTable) -> str:
    figure = _show_figure(path, benchmark, benchmark.figure_path(table.name), f"{table.title}: each method's numbers")
    curves = _show_figure(path, benchmark, benchmark.curves_path(table.name), f"{table.title}: by round")
    machines = "; ".join(list_machines(benchmark.summaries(table.name))) or "no machine yet"
    origin = f"{_quick_warning(benchmark)}{table.software or 'Motet'} on {machines}."
    legend = f"{origin} {render_legend([table], benchmark.seeds)}"
    details = "\n\n".join(text for text in (f"`{bench_command(benchmark)}`", describe_tests([table])) if text)
    text = render_markdown(table, legend=legend, figure=figure, curves=curves, details=details)
    return text.partition("\n\n")[2].rstrip()  # without the title: the document has its own


def _overview_text(path: Path, benchmark: Benchmark, tables: Sequence[ResultTable]) -> str:
    text = write_overview(benchmark, tables, benchmark.folder).partition("\n\n")[2] or "Not computed."
    parts = [f"{_quick_warning(benchmark)}{text}"]
    for name, title in FIGURES.items():
        if figure := _show_figure(path, benchmark, benchmark.folder / f"{OVERVIEW}-{name}.png", title):
            parts.append(fold(_FOLDED_FIGURES[name], figure) if name in _FOLDED_FIGURES else figure)
    return "\n\n".join(parts)


def _quick_warning(benchmark: Benchmark) -> str:
    """Return what the title says of a quick run, since a document has its own titles."""
    return f"**{QUICK_TITLE}.** {QUICK_WARNING} " if benchmark.request.quick else ""


def _show_figure(page: Path, benchmark: Benchmark, source: Path, title: str) -> str:
    """Copy a figure to the folder of the page, and return an image in Markdown; empty if there is no such figure."""
    figure = Path("figures") / f"{benchmark.suite.name}-{source.name}"
    return f"![{title}]({figure.as_posix()})" if _copy_figure(source, page.parent / figure) else ""


def _copy_figure(source: Path, target: Path) -> bool:
    """Copy a figure, or delete an outdated copy. Return whether there is a figure."""
    if not source.exists():
        target.unlink(missing_ok=True)
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, source.read_bytes())
    return True
