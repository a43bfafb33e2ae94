"""The partition of a run as a table of clients and labels, for its report."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from motet.experiment.build.federation import Federation

MAX_CLIENTS, MAX_LABELS = 500, 60


def client_label_table(federation: Federation) -> dict[str, Any]:
    """Return the sizes of the clients' training and test sets, and how often each client has each label.

    The labels are those of the corpus, or its domains or sources. They are left out if groups have different corpora,
    or if there are too many to draw.
    """
    indices = ((group, i) for group in federation.groups for i in range(group.clients.start, group.clients.stop))
    listed = list(islice(indices, MAX_CLIENTS))
    table: dict[str, Any] = {
        "clients": [federation.clients[i] for i in range(len(listed))],
        "train": [len(group.partition.train[i]) for group, i in listed],
        "test": [len(group.partition.test[i]) for group, i in listed],
        "left_out": len(federation.clients) - len(listed),
    }
    corpus = federation.corpus
    column = next((name for name in ("label", "domain", "source") if name in corpus.columns), None)
    if column is None or any(group.corpus is not corpus for group in federation.groups):
        return table
    names, codes = corpus.factorize(column)
    if len(names) > MAX_LABELS:
        return table
    counts = [np.bincount(codes[group.partition.train[i]], minlength=len(names)).tolist() for group, i in listed]
    return {**table, "by": column, "labels": [str(name) for name in names], "counts": counts}
