"""Natural partition: one client for each value of a column, such as author, domain or mailbox."""

from __future__ import annotations

from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.core.suggestions import did_you_mean
from motet.datasets.corpus import Corpus
from motet.datasets.data_file import NO_GROUP
from motet.partitions.partition import ClientRows, NamedClients, Partition
from motet.partitions.traits import Trait


def natural(
    corpus: Corpus,
    seed: Seed,
    column: str = "client",
    min_examples: int | None = None,
    held_out_clients: tuple[str, ...] = (),
) -> Partition:
    """Make each value of a column (author, domain, mailbox) with at least min_examples training examples a client.

    The values in `held_out_clients` do not become clients, and no client trains on their rows. The global test set has
    only their test rows, so it shows how models do on domains or tasks that no client has.
    """
    _check_column(corpus, column)
    names, codes = corpus.factorize(column)
    counts = np.bincount(codes[: corpus.num_train], minlength=len(names))
    _check_owners(corpus, column, int(counts[names == NO_GROUP].sum()))
    excluded = _find_codes(corpus, column, Trait(names, codes), held_out_clients)
    counts[excluded] = 0
    num_values = int((counts > 0).sum())
    if num_values < 2:
        raise _too_few_clients(column, str(names[int(counts.argmax())]))
    if min_examples is None:
        _check_singletons(column, counts, corpus.num_train)
    selected = np.flatnonzero(counts >= max(1, min_examples or 1))
    if len(selected) < 2:
        raise ConfigError(
            f"partition.min_examples is {min_examples}, but the largest client of column '{column}' has "
            f"{counts.max():,} training examples and the second largest {np.sort(counts)[-2]:,}. "
            "Ask for at most that many."
        )
    train, test, client_names = split_by_trait(corpus, Trait(names, codes), selected)
    recipe: dict[str, Any] = {"type": "natural", "column": column, "min_examples": min_examples}
    global_test = None
    if held_out_clients:
        recipe["held_out_clients"] = list(held_out_clients)
        global_test = corpus.num_train + np.flatnonzero(np.isin(codes[corpus.num_train :], excluded))
    if len(selected) < num_values:
        recipe["dropped_clients"] = num_values - len(selected)
    return Partition(train, test, {**recipe, "seed": seed.root}, client_names, global_test=global_test)


def split_by_trait(
    corpus: Corpus, trait: Trait, selected: np.ndarray | None = None
) -> tuple[ClientRows, ClientRows, NamedClients]:
    """Make each category a client: the `selected` ones, or all that occur in training.

    Test rows of the other categories are only in the global test set.
    """
    if selected is None:
        selected = np.unique(trait.codes[: corpus.num_train])
    client_of_category = np.full(len(trait.categories), -1, np.int64)
    client_of_category[selected] = np.arange(len(selected))
    clients = client_of_category[trait.codes]
    train = _rows_by_client(clients[: corpus.num_train], len(selected))
    test = _rows_by_client(clients[corpus.num_train :], len(selected))
    test = ClientRows(test.rows + corpus.num_train, test.offsets)
    return train, test, NamedClients(trait.categories[selected])


def _check_column(corpus: Corpus, column: str) -> None:
    """Reject a column that was not read. A file's own column is read only if `data.client` names it."""
    if column in corpus.columns:
        return
    if column == "client":  # the default: nobody has named a column
        raise ConfigError(
            f"{corpus.name}: there is no column 'client'; the columns that were read are {', '.join(corpus.columns)}. Name "
            "the one whose values are the clients with partition.column=…, or another column of your file with data.client=…"
        )
    raise ConfigError(
        f"partition.column: {corpus.name} has no column '{column}'; the columns that were read are "
        f"{', '.join(corpus.columns)}.{did_you_mean(column, corpus.columns)} If your file has a column '{column}', "
        f"set data.client={column} and leave partition.column out."
    )


def _check_owners(corpus: Corpus, column: str, num_unowned: int) -> None:
    """Reject training rows without a value. Only test rows may have none, unless the recipe mixes both."""
    if num_unowned:
        raise ConfigError(
            f"{corpus.name}: {num_unowned:,} rows have no value in column '{column}', and they would be training rows. "
            "Remove data.resplit and partition.merge, or give every row a value."
        )


def _find_codes(corpus: Corpus, column: str, trait: Trait, values: tuple[str, ...]) -> np.ndarray:
    """Return the codes of `held_out_clients`, each of which must have test rows."""
    in_test = [str(value) for value in trait.categories[np.unique(trait.codes[corpus.num_train :])]]
    if missing := next((value for value in values if value not in in_test), None):
        raise ConfigError(
            f"partition.held_out_clients has '{missing}', but no test row has this value in column '{column}'. Name values "
            f"of that column, such as '{in_test[0]}'.{did_you_mean(missing, in_test)}"
        )
    return np.flatnonzero(np.isin(trait.categories, values))


def _rows_by_client(clients: np.ndarray, num_clients: int) -> ClientRows:
    """Group rows by their client; -1 means no client."""
    rows = np.flatnonzero(clients >= 0)
    return ClientRows.from_sizes(
        rows[np.argsort(clients[rows], kind="stable")], np.bincount(clients[rows], minlength=num_clients)
    )


def _too_few_clients(column: str, value: str) -> ConfigError:
    return ConfigError(
        f"partition.column: '{column}' has one value, '{value}'; at least two clients are needed. Name another column, or "
        "divide the rows over clients of your own: partition.type=uniform partition.clients=10"
    )


def _check_singletons(column: str, counts: np.ndarray, num_rows: int) -> None:
    num_values, num_singletons = int((counts > 0).sum()), int((counts == 1).sum())
    if num_rows >= 100 and num_singletons > 0.9 * num_values:
        raise ConfigError(
            f"partition.column: '{column}' has {num_values:,} values in {num_rows:,} training rows, "
            f"and {num_singletons:,} of them occur once: nearly every client would have one example. "
            f"Set partition.min_examples=2 to keep the {num_values - num_singletons:,} others, set it to 1 to keep "
            "all, or name a column that groups rows."
        )
