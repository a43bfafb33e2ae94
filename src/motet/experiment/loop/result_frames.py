"""Results as pandas DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from motet.core.errors import ConfigError


def make_frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Return a DataFrame with these rows. pandas is optional."""
    try:
        import pandas
    except ImportError:
        raise ConfigError("a DataFrame needs pandas, which is not installed. Run: pip install pandas") from None
    return pandas.DataFrame(list(rows))
