"""Results where they are read: a Markdown file keeps a place for each table, and a benchmark fills its own places in.

Pictures of the tables are copied to `figures` beside the file.

<!-- motet bench fednlp partitions -->
… replaced …
<!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from motet.benchmark.benchmark_folder import Benchmark, bench_command, list_machines
from motet.benchmark.render import render_legend, render_markdown
from motet.benchmark.result_tables import ResultTable
from motet.core.errors import ConfigError
from motet.transport.spill_store import write_atomically

_PLACE = r"(<!-- motet bench {suite} {table} -->\n).*?(<!-- end -->)"


def fill_markdown_tables(path: Path, benchmark: Benchmark, tables: Sequence[ResultTable]) -> str:
    """Put every table of the written results that has a place into it, with how it came about; what was done, in a sentence."""
    if not path.exists():
        raise ConfigError(f"--into: there is no file '{path}'.")
    text, filled = path.read_text("utf-8"), []
    for table in tables:
        place = re.compile(_PLACE.format(suite=re.escape(benchmark.suite.name), table=re.escape(table.name)), re.S)
        if not place.search(text):
            continue
        body = render_markdown(table).partition("\n\n")[2].rstrip()
        picture = Path("figures") / f"{benchmark.suite.name}-{table.name}.png"
        if _copied(benchmark.figure_path(table.name), path.parent / picture):
            body += f"\n\n![{table.title}: each method's numbers]({picture.as_posix()})"
        where = "; ".join(list_machines(benchmark.summaries_for_table(table.name))) or "nothing yet"
        how = f"`{bench_command(benchmark)}` on {where}: {render_legend([table], benchmark.seeds)}"
        text = place.sub(lambda m, body=body, how=how: f"{m[1]}\n{body}\n\n{how}\n\n{m[2]}", text)  # type: ignore[misc]
        filled.append(table.name)
    write_atomically(path, text.encode())
    if not filled:
        return f"{path} has no place for a table of {benchmark.suite.name}: <!-- motet bench {benchmark.suite.name} TABLE -->"
    return f"{path}: {', '.join(filled)} filled in."


def _copied(drawn: Path, to: Path) -> bool:
    """Whether there is a picture; one of runs that are gone does not stay."""
    if not drawn.exists():
        to.unlink(missing_ok=True)
        return False
    to.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(to, drawn.read_bytes())
    return True
