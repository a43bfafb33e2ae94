"""Claims of a paper about a table: `fedopt > fedavg`, `fedsplit ≈ fedsplit16 within 1`.

Each side of a claim is a row, or row/column. `*` stands for every row or every column in turn, the same one on both
sides. A side without a column uses the column of the other side. If neither names one, the claim is about all columns, or
is one claim for each kind of settings, if the suite names kinds. `claim_significance` checks claims against our numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from motet.core.errors import ConfigError

_CLAIM = re.compile(r"(?P<left>.+?)\s*(?P<sign>[>≥≈])\s*(?P<right>.+?)(?:\s+within\s+(?P<within>[\d.]+))?")


Verdict = Literal["shown", "not shown", "contradicted"]


class Judgment(NamedTuple):
    """A verdict, and by how much a lead can change before the verdict changes."""

    verdict: Verdict
    distance: float


class ClaimSide(NamedTuple):
    """One side of a claim. Without a column it uses the column of the other side, or every column."""

    row: str
    column: str | None


class CellKey(NamedTuple):
    """The row and the column of a table cell."""

    row: str
    column: str

    def fill(self, row: str, column: str) -> CellKey:
        """Return the key with a row and a column in place of its stars."""
        return CellKey(row if self.row == "*" else self.row, column if self.column == "*" else self.column)


@dataclass(frozen=True)
class Claim:
    """A parsed claim."""

    text: str
    left: ClaimSide
    sign: str
    right: ClaimSide
    margin: float
    only: tuple[str, ...] | None = None  # columns, for a claim about one kind of settings

    @staticmethod
    def parse(text: str) -> Claim:
        match = _CLAIM.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"claim '{text}' cannot be parsed; expected two rows and >, ≥ or ≈ between them. "
                "Write e.g. 'fedopt > fedavg', or 'a ≈ b within 1'."
            )
        return Claim(
            text=text,
            left=_parse_side(match["left"], text),
            sign=match["sign"],
            right=_parse_side(match["right"], text),
            margin=float(match["within"] or (1.0 if match["sign"] == "≈" else 0.0)),
        )

    @property
    def names_column(self) -> bool:
        return self.left.column is not None or self.right.column is not None

    def limit_to(self, kind: str, columns: Sequence[str]) -> Claim:
        """Return the claim about the columns of one kind of settings."""
        return replace(self, text=f"{self.text} ({kind})", only=tuple(columns))

    def judge(self, lead: float) -> Judgment:
        """Judge the claim as if the lead had no error. The lead says by how much the left side is better than the right."""
        lowest, highest = 0.0 if self.sign == ">" else -self.margin, self.margin if self.sign == "≈" else math.inf
        if lead < -self.margin or lead > highest:
            return Judgment("contradicted", max(-self.margin - lead, lead - highest))
        if lead < lowest or (self.sign == ">" and lead == 0):
            return Judgment("not shown", 0.0)
        return Judgment("shown", min(lead - lowest, highest - lead))

    def cell_pairs(self, rows: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[CellKey, CellKey]]:
        """Yield the pairs of cells that the claim compares."""
        left = CellKey(self.left.row, self.left.column or self.right.column or "*")
        right = CellKey(self.right.row, self.right.column or self.left.column or "*")
        columns = columns if self.only is None else self.only
        for row in rows if "*" in (left.row, right.row) else ("",):
            for column in columns if "*" in (left.column, right.column) else ("",):
                pair = left.fill(row, column), right.fill(row, column)
                if pair[0] != pair[1]:  # "c/y > *" does not compare c/y with itself
                    yield pair


def _parse_side(text: str, claim: str) -> ClaimSide:
    row, slash, column = text.strip().partition("/")
    if not row or (slash and not column):
        raise ConfigError(
            f"claim '{claim}': '{text}' is neither a row nor row/column. Write e.g. 'fedopt' or 'fedopt/20news'."
        )
    return ClaimSide(row=row, column=column or None)
