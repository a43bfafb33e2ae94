"""Errors about data in the words of a Python call: `text=…` instead of `data.text=…`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from motet.core.errors import ConfigError

_REPLACEMENTS = [
    (re.compile(r"data\.accept=\[([^\]]*)\]"), lambda match: f"accept={re.split(', *', match[1])}"),
    (re.compile(r"data\.columns\.(\w+)=…"), lambda match: f"columns={{'{match[1]}': …}}"),
    (re.compile(r"data\.columns\.(\w+)"), lambda match: f"columns['{match[1]}']"),
    (re.compile(r"\btask\.type\b"), lambda match: "task"),
    (re.compile(r"\bdata\.(?=[a-z_]+\b)"), lambda match: ""),
    (re.compile(r"(?<==…) (?=\w+=…)"), lambda match: ", "),
]


@contextmanager
def explain_in_python(table: str = "") -> Iterator[None]:
    """Name arguments of `motet.load` in place of recipe keys. `table` is what the data is, if it is not a file."""
    try:
        yield
    except ConfigError as error:
        text = str(error)
        for pattern, replacement in _REPLACEMENTS:
            text = pattern.sub(replacement, text)
        if table:
            text = re.sub(rf"'?[^\s']*\b({table}\.parquet|data-[\d-]+of-\d+\.arrow)'?", f"the {table}", text)
            text = text.replace("the file has", "it has").replace("the file ", f"the {table} ")
        raise type(error)(text) from None
