"""Every error that the page of questions quotes is an error of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ERROR_BLOCK = re.compile(r"^```error\n(.*?)\n```$", re.M | re.S)


def message_templates() -> Iterator[str]:
    """Yield the strings of the code, with `…` in place of values."""
    for path in (ROOT / "src" / "motet").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_every_quoted_error_is_in_the_code() -> None:
    quoted = ERROR_BLOCK.findall((ROOT / "docs" / "faq.md").read_text("utf-8"))
    assert len(quoted) > 15
    templates = "\n".join(message_templates())
    missing = [message for message in quoted if message not in templates]
    assert missing == []
