"""Who had what: a partition as a table of clients and labels, small enough to be drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from motet.experiment.build.federation import Federation

MOST_CLIENTS, MOST_LABELS = 500, 60


def client_label_table(federation: Federation) -> dict[str, Any]:
    """Sizes of the clients' training and test sets, and how often each client trains on each label, domain or source.

    Labels are counted where all groups have one corpus.
    """
    seats = [(group, place) for group in federation.groups for place in range(group.clients.start, group.clients.stop)]
    shown = seats[:MOST_CLIENTS]
    found: dict[str, Any] = {
        "clients": [federation.clients[k] for k in range(len(shown))],
        "train": [int(group.partition.train.sizes[place]) for group, place in shown],
        "test": [int(group.partition.test.sizes[place]) for group, place in shown],
        "left_out": len(seats) - len(shown),
    }
    corpus = federation.corpus
    by = next((name for name in ("label", "domain", "source") if name in corpus.columns), None)
    if by is None or any(group.corpus is not corpus for group in federation.groups):
        return found
    names, codes = corpus.factorize(by)
    if len(names) > MOST_LABELS:
        return found
    counts = [np.bincount(codes[group.partition.train[place]], minlength=len(names)).tolist() for group, place in shown]
    return {**found, "by": by, "labels": [str(n) for n in names], "counts": counts}
