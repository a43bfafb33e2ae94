"""Any dataset of the Hugging Face hub, or a folder in its form, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motet.core.errors import ConfigError, DataError, first_line
from motet.datasets.column_types import cast_columns, infer_task
from motet.datasets.corpus import Corpus, join_splits, split_corpus
from motet.datasets.local_files import missing_columns_message


def load_from_hub(name: str, names: Mapping[str, str | None], task: str | None, share: float) -> Corpus:
    """`name` may be followed by a configuration: glue:mrpc."""
    loaded = _loaded(name)
    if "train" not in loaded:
        raise DataError(f"{name}: there is no split 'train'; it has {', '.join(loaded)}.")
    train = _columns(name, loaded["train"], names)
    kind = task or infer_task(train)
    if kind is None:
        raise DataError(missing_columns_message(name, loaded["train"].column_names))
    held = next((s for s in ("test", "validation") if s in loaded and _labelled(loaded[s], names)), None)
    if held is None:
        return split_corpus(name, kind, cast_columns(name, kind, train), share, "Hugging Face hub")
    test = _columns(name, loaded[held], names)
    return join_splits(name, kind, cast_columns(name, kind, train), cast_columns(name, kind, test), "Hugging Face hub")


def _loaded(name: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"data.name: '{name}' is none of Motet's own corpora, and the hub needs a package; "
            "run: pip install 'motet[hub]', or give a file with data.path=…"
        ) from None
    where, _, configuration = name.partition(":")
    try:
        return datasets.load_dataset(where, configuration or None)
    except Exception as error:  # the library raises whatever its network layer raises
        raise ConfigError(
            f"data.name: '{name}' could not be loaded from the hub ({first_line(error)}); check the name and the network, "
            "or give a file with data.path=…"
        ) from None


def _columns(name: str, table: Any, names: Mapping[str, str | None]) -> dict[str, list[Any]]:
    columns = {}
    for ours, theirs in names.items():
        column = theirs or ours
        if column in table.column_names:
            named = getattr(table.features.get(column), "names", None)  # classes are numbers with names beside them
            columns[ours] = [named[v] if named else v for v in table[column]]
        elif theirs is not None:
            raise DataError(
                f"{name}: there is no column '{column}'; it has {', '.join(table.column_names)}. Set data.{ours}=…"
            )
    return columns


def _labelled(table: Any, names: Mapping[str, str | None]) -> bool:
    """The hub's test sets often have their labels taken away: −1."""
    column = names.get("label") or "label"
    return column not in table.column_names or not len(table) or table[0][column] not in (-1, None)
