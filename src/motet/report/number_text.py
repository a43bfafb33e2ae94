"""How numbers are written in tables and sentences."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_HYPHEN = re.compile(r"(?<![\w-])-(?=[\d.])")


def use_minus_signs(text: str) -> str:
    """Write negative numbers with a minus sign, which is as wide as a plus, and not with a hyphen: −1.5.

    Names such as top-5 and powers of ten such as 1e-05 stay as they are.
    """
    return _HYPHEN.sub("−", text)


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 run", "1,200 runs"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def format_p_value(p: float, digits: int = 3) -> str:
    """Return `p = 0.042`. A p-value is never 0."""
    least = 10.0**-digits
    return f"p < {least:.{digits}f}" if p < least else f"p = {p:.{digits}f}"


def format_range(values: np.ndarray) -> str:
    """Return the smallest and the largest of whole numbers: "12 to 25", or "60" if all are equal."""
    low, high = f"{values.min():,}", f"{values.max():,}"
    return low if low == high else f"{low} to {high}"


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours, whichever fits best."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
