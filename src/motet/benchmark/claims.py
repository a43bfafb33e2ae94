"""Claims of a paper about a table, checked against our numbers: `fedopt > fedavg`, `fedsplit ≈ fedsplit16 within 1`.

Each side of a claim is a row, or row/column. `*` stands for every row or every column in turn, the same one on both
sides. A side without a column uses the column of the other side; if neither names one, the claim is about all columns.
Claims compare means. Where a claim does not hold, the result lists the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from motet.core.errors import ConfigError

_CLAIM = re.compile(r"(?P<left>.+?)\s*(?P<sign>[>≥≈])\s*(?P<right>.+?)(?:\s+within\s+(?P<within>[\d.]+))?")


class HasMean(Protocol):
    @property
    def mean(self) -> float | None: ...


class ClaimSide(NamedTuple):
    """One side of a claim. Without a column it uses the column of the other side, or every column."""

    row: str
    column: str | None


class CellKey(NamedTuple):
    """The row and the column of a table cell."""

    row: str
    column: str


@dataclass(frozen=True)
class Claim:
    """A parsed claim."""

    text: str
    left: ClaimSide
    sign: str
    right: ClaimSide
    margin: float

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

    def holds_for(self, lead: float) -> bool:
        """Return whether the claim holds if the left side is better than the right side by `lead`."""
        return {">": lead > 0, "≥": lead >= -self.margin, "≈": abs(lead) <= self.margin}[self.sign]


@dataclass(frozen=True)
class ClaimResult:
    """In how many of the compared pairs of cells a claim holds, and the numbers of the pairs in which it does not."""

    claim: str
    held: int
    compared: int
    counterexamples: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return 0 < self.compared == self.held


def check_claims(
    claims: Sequence[str],
    rows: Sequence[str],
    columns: Sequence[str],
    entries: Mapping[str, Mapping[str, HasMean]],
    lower_is_better: Sequence[str] = (),
) -> Iterator[ClaimResult]:
    """Check every claim. Pairs with a cell that was not run are skipped."""
    for claim in map(Claim.parse, claims):
        held, compared, counterexamples = 0, 0, []
        for left, right in _cell_pairs(claim, rows, columns):
            a, b = (entries.get(key.row, {}).get(key.column) for key in (left, right))
            if a is None or b is None or a.mean is None or b.mean is None:
                continue
            compared += 1
            if claim.holds_for((b.mean - a.mean) if left.column in lower_is_better else (a.mean - b.mean)):
                held += 1
            else:
                where = left.column if left.column == right.column else f"{left.column}, {right.column}"
                counterexamples.append(f"{left.row} {a.mean:.1f}, {right.row} {b.mean:.1f} ({where})")
        yield ClaimResult(claim=claim.text, held=held, compared=compared, counterexamples=tuple(counterexamples))


def _parse_side(text: str, claim: str) -> ClaimSide:
    row, slash, column = text.strip().partition("/")
    if not row or (slash and not column):
        raise ConfigError(
            f"claim '{claim}': '{text}' is neither a row nor row/column. Write e.g. 'fedopt' or 'fedopt/20news'."
        )
    return ClaimSide(row=row, column=column or None)


def _cell_pairs(claim: Claim, rows: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[CellKey, CellKey]]:
    """Yield the pairs of cells that a claim compares."""
    left, right = claim.left, claim.right
    left_column = left.column or right.column or "*"
    right_column = right.column or left.column or "*"
    for row in rows if "*" in (left.row, right.row) else ("",):
        for column in columns if "*" in (left_column, right_column) else ("",):
            pair = (
                CellKey(row if left.row == "*" else left.row, column if left_column == "*" else left_column),
                CellKey(row if right.row == "*" else right.row, column if right_column == "*" else right_column),
            )
            if pair[0] != pair[1]:  # "c/y > *" does not compare c/y with itself
                yield pair
