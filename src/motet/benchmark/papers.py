"""Results where they are read: a Markdown file keeps a place for each table, and a benchmark fills its own places in.

Pictures of the tables go to `figures` beside the file.

<!-- motet bench fednlp partitions -->
… replaced …
<!-- end -->
"""

from __future__ import annotations

import re
from pathlib import Path

from motet.benchmark.figure import draw_table
from motet.benchmark.render import legend, markdown
from motet.benchmark.session import Benchmark, command, machines
from motet.core.errors import ConfigError
from motet.transport.memories import write_atomically

_PLACE = r"(<!-- motet bench {suite} {table} -->\n).*?(<!-- end -->)"


def fill_in(path: Path, benchmark: Benchmark) -> str:
    """Put every table that has a place into it, with how it came about; what was done, in a sentence."""
    if not path.exists():
        raise ConfigError(f"--into: there is no file '{path}'.")
    text, filled = path.read_text("utf-8"), []
    summaries = [s for name in benchmark.runs if (s := benchmark.store.summary(name)) is not None]
    for table in benchmark.tables():
        place = re.compile(_PLACE.format(suite=re.escape(benchmark.suite.name), table=re.escape(table.name)), re.S)
        if not place.search(text):
            continue
        body = markdown(table).partition("\n\n")[2].rstrip()
        picture = Path("figures") / f"{benchmark.suite.name}-{table.name}.png"
        if draw_table(table, path.parent / picture):
            body += f"\n\n![{table.title}: each method's numbers, a panel a column]({picture.as_posix()})"
        how = f"`{command(benchmark)}` on {'; '.join(machines(summaries)) or 'nothing yet'}: {legend([table], benchmark.seeds)}"
        text = place.sub(lambda m, body=body, how=how: f"{m[1]}\n{body}\n\n{how}\n\n{m[2]}", text)  # type: ignore[misc]
        filled.append(table.name)
    write_atomically(path, text.encode())
    if not filled:
        return f"{path} has no place for a table of {benchmark.suite.name}: <!-- motet bench {benchmark.suite.name} TABLE -->"
    return f"{path}: {', '.join(filled)} filled in."
