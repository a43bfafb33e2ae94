"""What is doubtful about the column of the clients: one client in several ways of writing, or several as one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from motet.datasets.corpus import Corpus
from motet.datasets.data_file import NO_GROUP
from motet.datasets.inspection.damaged_names import find_excel_dates, find_undecodable
from motet.datasets.inspection.finding import list_counts
from motet.datasets.inspection.similar_names import find_similar
from motet.datasets.missing_values import looks_missing

MAX_COMPARED = 100_000  # clients; more take seconds
UNIQUE_SHARE, MIN_ROWS = 0.9, 20  # clients per training row; such a column may count the rows
_ROUNDED = re.compile(r"\d([.,]\d+)?E\+\d+", re.IGNORECASE)


def find_client_doubts(corpus: Corpus) -> tuple[str, ...]:
    """Return sentences with the names of clients and their training rows. Test rows may have other names for them."""
    if "client" not in corpus.columns or not corpus.num_train:
        return ()
    names, codes = corpus.factorize("client")
    counts = np.bincount(codes[: corpus.num_train], minlength=len(names)).tolist()
    every = {str(name): count for name, count in zip(names, counts, strict=True) if name != NO_GROUP}
    return (
        *_describe_similar(every),
        *_describe({name: count for name, count in every.items() if count}, corpus.num_train),
    )


def _describe_similar(clients: Mapping[str, int]) -> Iterator[str]:
    if len(clients) <= MAX_COMPARED and (alike := find_similar(clients)):
        yield f"the clients {list_counts(alike)} differ only in case, spaces or characters that look alike. Write them alike."


def _describe(clients: Mapping[str, int], num_rows: int) -> Iterator[str]:
    if missing := {name: count for name, count in clients.items() if looks_missing(name)}:
        yield f"{list_counts(missing)}: clients that look like missing values. Their rows are those of one client."
    if undecodable := find_undecodable(clients):
        yield f"{list_counts(undecodable)}: clients with characters that were decoded wrongly. Set data.encoding."
    if dates := find_excel_dates(clients):
        yield f"{list_counts(dates)}: clients that are dates, unlike the others. Excel turns values such as 3-5 into dates."
    if rounded := {name: count for name, count in clients.items() if _ROUNDED.fullmatch(name)}:
        yield (
            f"{list_counts(rounded)}: clients that are rounded numbers, as Excel writes long ones. Several clients may have "
            "become one. Write the column as text."
        )
    if num_rows >= MIN_ROWS and len(clients) >= UNIQUE_SHARE * num_rows:
        yield f"there are {len(clients):,} clients for {num_rows:,} training rows. Check data.client."
