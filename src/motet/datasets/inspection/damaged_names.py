"""Names of labels or clients that another program has changed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from motet.datasets.inspection.text_forms import REPLACEMENT_CHARACTER, has_mojibake

# Excel turns 3-5 into 3-May, 5. Mrz or 2024-05-03 00:00:00.
_MONTH = "(?:jan|feb|mar|mär|mrz|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)"
_DATE = re.compile(
    rf"\d{{1,2}}(?:\. |[- ]){_MONTH}\.?(?:[- ]\d\d(?:\d\d)?)?|{_MONTH}\.?[- ]\d\d|\d{{4}}-\d\d-\d\d(?: 00:00:00)?",
    re.IGNORECASE,
)
MAX_DATE_SHARE = 0.5  # of the names; more of them are dates indeed


def find_undecodable(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the names with characters that were decoded wrongly."""
    return {name: count for name, count in counts.items() if REPLACEMENT_CHARACTER in name or has_mojibake(name)}


def find_excel_dates(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the names that are dates, if most others are not."""
    dates = {name: count for name, count in counts.items() if _DATE.fullmatch(name)}
    return dates if len(dates) <= MAX_DATE_SHARE * len(counts) else {}
