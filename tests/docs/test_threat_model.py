"""Every protection of the threat model names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "threat-model.md"


def test_every_row_of_the_threat_model_names_an_existing_test() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "---" not in line]
    attacks = [row for row in rows if not row.endswith("| shown by |")]
    assert len(attacks) > 20
    for row in attacks:
        match = re.search(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert match, row
        tree = ast.parse((ROOT / match[1]).read_text())
        assert match[2] in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, row
