"""What a paper claims of its table, checked against ours: `fedopt > fedavg`, `fedsplit ≈ fedsplit16 within 1`.

A side is a row, or row/column; `*` stands for each method or column in turn (the same on both sides). A side without a
column is in the other's; without any, a claim is about every column. It holds if it holds for the means; where it does not, the
numbers are said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from motet.core.errors import ConfigError

_FORM = re.compile(r"(?P<left>.+?)\s*(?P<sign>[>≥≈])\s*(?P<right>.+?)(?:\s+within\s+(?P<within>[\d.]+))?")


class HasMean(Protocol):
    @property
    def mean(self) -> float | None: ...


class ClaimSide(NamedTuple):
    """What a claim compares: a row in a column (None: in the column of the other side, or in every one)."""

    row: str
    column: str | None


@dataclass(frozen=True)
class Claim:
    """A claim as it was written, and what it means."""

    text: str
    left: ClaimSide
    sign: str
    right: ClaimSide
    margin: float

    @staticmethod
    def parse(text: str) -> Claim:
        found = _FORM.fullmatch(text)
        if found is None:
            raise ConfigError(f"claim '{text}' is not understood; write 'fedopt > fedavg', or 'a ≈ b within 1'.")
        margin = float(found["within"] or (1.0 if found["sign"] == "≈" else 0.0))
        return Claim(text, _side(found["left"], text), found["sign"], _side(found["right"], text), margin)

    def fits(self, ahead: float) -> bool:
        """Does it hold where the left side is so far ahead?"""
        return {">": ahead > 0, "≥": ahead >= -self.margin, "≈": abs(ahead) <= self.margin}[self.sign]


@dataclass(frozen=True)
class ClaimResult:
    """A claim, in how many places it holds, and the places where it does not."""

    claim: str
    held: int
    places: int
    against: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return 0 < self.places == self.held


def check_claims(
    claims: Sequence[str],
    rows: Sequence[str],
    columns: Sequence[str],
    entries: Mapping[str, Mapping[str, HasMean]],
    lower: Sequence[str] = (),
) -> Iterator[ClaimResult]:
    """What became of every claim; rows and columns that were not run now are nothing to complain of."""
    for claim in map(Claim.parse, claims):
        held, places, against = 0, 0, []
        for (row, column), (other, beside) in _places(claim, rows, columns):
            a, b = (entries.get(r, {}).get(c) for r, c in ((row, column), (other, beside)))
            if a is None or b is None or a.mean is None or b.mean is None:
                continue
            places += 1
            fits = claim.fits((b.mean - a.mean) if column in lower else (a.mean - b.mean))
            held += fits
            if not fits:
                against.append(
                    f"{row} {a.mean:.1f}, {other} {b.mean:.1f} ({column if column == beside else f'{column}, {beside}'})"
                )
        yield ClaimResult(claim.text, held, places, tuple(against))


def _side(text: str, claim: str) -> ClaimSide:
    row, slash, column = text.strip().partition("/")
    if not row or (slash and not column):
        raise ConfigError(f"claim '{claim}': '{text}' is no row and no row/column; write 'fedopt' or 'fedopt/20news'.")
    return ClaimSide(row, column or None)


Place = tuple[str, str]


def _places(claim: Claim, rows: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[Place, Place]]:
    sides = claim.left, claim.right
    at, beside = (side.column or other.column or "*" for side, other in zip(sides, reversed(sides), strict=True))
    for method in rows if "*" in (claim.left.row, claim.right.row) else ("",):
        row, other = (method if side.row == "*" else side.row for side in sides)
        for each in columns if "*" in (at, beside) else ("",):
            here, there = (row, each if at == "*" else at), (other, each if beside == "*" else beside)
            if here != there:  # nobody is ahead of itself
                yield here, there
