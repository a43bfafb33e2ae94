"""Who had what: a partition as a table of clients and labels, small enough to be drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from motet.experiment.federation import Federation

MOST_CLIENTS, MOST_LABELS = 500, 60


def shares_of(federation: Federation) -> dict[str, Any]:
    """Sizes of the clients' training and test sets, and how often each client trains on each label, domain or source."""
    partition, corpus = federation.partition, federation.corpus
    count = min(len(partition), MOST_CLIENTS)
    found: dict[str, Any] = {
        "clients": [partition.clients[k] for k in range(count)],
        "train": partition.train.sizes[:count].tolist(),
        "test": partition.test.sizes[:count].tolist(),
        "left_out": len(partition) - count,
    }
    by = next((name for name in ("label", "domain", "source") if name in corpus.columns), None)
    if by is None:
        return found
    names, codes = corpus.codes(by)
    if len(names) > MOST_LABELS:
        return found
    counts = [np.bincount(codes[partition.train[k]], minlength=len(names)).tolist() for k in range(count)]
    return {**found, "by": by, "labels": [str(n) for n in names], "counts": counts}
