"""Run notebooks in this process, and turn them into pages.

The notebooks in git have no outputs. Tests run them, and `make docs` shows what they print and draw.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
LINK = re.compile(r"\(([\w./-]+)\.ipynb\)")  # between notebooks
RUN_VARIABLE = "MOTET_RUN_NOTEBOOKS"  # set by `make docs`


def notebook_pages() -> dict[str, str]:
    """Return a page for each notebook, with outputs if the environment variable is set."""
    return {f"notebooks/{path.stem}.md": notebook_page(path, run=RUN_VARIABLE in os.environ) for path in NOTEBOOKS}


def notebook_page(path: Path, run: bool) -> str:
    """Return a notebook as Markdown."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        outputs = run_cells(cells) if run else iter([""] * len(cells))
        parts = [_render_cell("".join(cell["source"]), cell["cell_type"]) + next(outputs) for cell in cells]
    title, _, rest = "\n\n".join(parts).partition("\n")
    download = f"[Download this notebook]({path.name}){{ .md-button download }}"
    return f"{title}\n\n{download}\n" + LINK.sub(r"(\1.md)", rest) + "\n"


def _render_cell(source: str, kind: str) -> str:
    return source if kind == "markdown" else f"```python\n{source}\n```"


def run_cells(cells: list[dict[str, Any]]) -> Iterator[str]:
    """Run the code cells in order, and yield the output of each cell as Markdown."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        yield _run_cell("".join(cell["source"]), names) if cell["cell_type"] == "code" else ""


def _run_cell(source: str, names: dict[str, Any]) -> str:
    """Run a cell. The value of a last expression is shown, like in Jupyter."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return _text_block(printed.getvalue()) + _render_value(value)


def _render_value(value: Any) -> str:
    from matplotlib.figure import Figure

    if value is None:
        return ""
    if isinstance(value, Figure):
        buffer = io.BytesIO()
        value.savefig(buffer, format="png", dpi=110, bbox_inches="tight")
        return f'\n\n<img alt="figure" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'
    if hasattr(value, "_repr_html_"):
        return f'\n\n<div class="output">{value._repr_html_()}</div>'
    return _text_block(repr(value))


def _text_block(text: str) -> str:
    return f"\n\n```text\n{text.rstrip()}\n```" if text.strip() else ""
