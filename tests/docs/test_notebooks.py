"""The notebooks run from the first cell to the last, and are stored without outputs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_has_no_stored_outputs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(DOCS / "_site"), *sys.path])
    from notebook_pages import notebook_page

    cells = json.loads(path.read_text("utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    page = notebook_page(path, run=True)
    assert page.count("```text") > 0
    assert page.count("data:image/png") > 0
