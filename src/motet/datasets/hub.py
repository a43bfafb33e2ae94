"""Any dataset of the Hugging Face hub, or a folder in its form, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motet.core.errors import ConfigError, DataError
from motet.datasets.corpus import Corpus, joined, split


def from_hub(name: str, names: Mapping[str, str | None], test_share: float) -> Corpus:
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"data.name: '{name}' is none of Motet's own corpora, and the hub needs a package; "
            "run: pip install 'motet[hub]', or give a file with data.path=…"
        ) from None
    try:
        loaded = datasets.load_dataset(name)
    except Exception as error:  # the library raises whatever its network layer raises
        first = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"data.name: '{name}' could not be loaded from the hub ({first}); check the name and the network, "
            "or give a file with data.path=…"
        ) from None
    if "train" not in loaded:
        raise DataError(f"{name}: there is no split 'train'; it has {', '.join(loaded)}.")
    train = _columns(name, loaded["train"], names)
    held = next((s for s in ("test", "validation") if s in loaded and _labelled(loaded[s], names)), None)
    if held is None:
        return split(name, "classification", train, test_share, "Hugging Face hub")
    return joined(name, "classification", train, _columns(name, loaded[held], names), "Hugging Face hub")


def _columns(name: str, table: Any, names: Mapping[str, str | None]) -> dict[str, list[Any]]:
    columns = {}
    for ours, theirs in names.items():
        column = theirs or ours
        if column in table.column_names:
            values = table[column]
            feature = table.features.get(column)
            named = getattr(feature, "names", None)
            columns[ours] = [named[v] if named else str(v) for v in values]
        elif theirs is not None or ours == "text":
            raise DataError(f"{name}: there is no column '{column}'; it has {', '.join(table.column_names)}. Set data.{ours}=…")
    return columns


def _labelled(table: Any, names: Mapping[str, str | None]) -> bool:
    column = names.get("label") or "label"
    return column not in table.column_names or not len(table) or table[0][column] not in (-1, None)
