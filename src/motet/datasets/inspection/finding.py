"""What an inspection finds, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_LISTED = 5


@dataclass(frozen=True)
class Finding:
    """Something in a corpus that a user should know."""

    kind: str  # one of findings.MISTAKE_KINDS, or another word for a warning
    message: str  # what was found, with numbers
    advice: str
    is_mistake: bool
    can_accept: bool = True  # False: training cannot work, whatever the recipe says
    may_need_more_rows: bool = False  # using more training rows may resolve it

    def __str__(self) -> str:
        return f"{self.message} {self.advice}".rstrip()


def list_first(items: Sequence[str], limit: int, size: int | None = None) -> str:
    """Join the first items, and say how many of `size` are left: "a, b and 3 more"."""
    left = (len(items) if size is None else size) - limit
    return ", ".join(items[:limit]) + (f" and {left:,} more" if left > 0 else "")


def list_counts(counts: Mapping[str, int], size: int | None = None) -> str:
    """List the first labels with their counts; `size` is the number of all labels."""
    return list_first([f"'{name}' ({count:,})" for name, count in counts.items()], MAX_LISTED, size)


def format_share(count: int, size: int) -> str:
    """Format a count as a percentage of `size`; a count above 0 never becomes "0.0 %"."""
    share = 100 * count / max(1, size)
    return f"{share:.1f} %" if share >= 0.05 or not count else "under 0.1 %"
