"""Print facts as a table of two columns: names and sentences."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING

from motet.cli.terminal import echo

if TYPE_CHECKING:
    from motet.datasets.inspection.corpus_inspection import CorpusInspection

MIN_NAME_WIDTH, MIN_TEXT_WIDTH = 17, 40  # the longest name of an inspection has 17 characters


def print_facts(facts: Mapping[str, str]) -> None:
    """Print one line per fact."""
    print_columns(facts, max(MIN_NAME_WIDTH, *map(len, facts)) + 1)


def print_columns(texts: Mapping[str, str], name_width: int) -> None:
    """Print one line per name with its text. In a terminal, long texts are wrapped."""
    line_width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for name, text in texts.items():
        lines = wrap(text, max(MIN_TEXT_WIDTH, line_width - name_width)) if line_width else [text]
        echo(f"{name:{name_width}}" + f"\n{' ' * name_width}".join(lines))


def print_inspection(inspection: CorpusInspection, left_out: str = "") -> None:
    """Print the inspection of a corpus without the row `left_out`, and an empty line."""
    from motet.datasets.inspection.inspection_table import describe_inspection

    print_facts({name: text for name, text in describe_inspection(inspection).items() if name != left_out})
    echo()


def print_warnings(warnings: Iterable[object]) -> None:
    for warning in warnings:
        echo(f"warning: {warning}", color="yellow")
