"""What an inspection finds, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
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
    is_of_few_rows: bool = False  # more training rows may be enough to resolve it

    def __str__(self) -> str:
        return f"{self.message} {self.advice}".rstrip()


def list_counts(counts: Mapping[str, int], size: int | None = None) -> str:
    """List the first labels with their counts; `size` is the number of all labels."""
    left = (len(counts) if size is None else size) - MAX_LISTED
    text = ", ".join(f"'{name}' ({count:,})" for name, count in list(counts.items())[:MAX_LISTED])
    return f"{text} and {left:,} more" if left > 0 else text


def format_share(count: int, size: int) -> str:
    """Format a count as a percentage of `size`; a count above 0 never becomes "0.0 %"."""
    share = 100 * count / max(1, size)
    return f"{share:.1f} %" if share >= 0.05 or not count else "under 0.1 %"
