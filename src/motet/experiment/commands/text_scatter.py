"""A scatter plot of texts, colored by client: the first two principal components of TF-IDF."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions import Partition
from motet.partitions.measures import read_texts
from motet.partitions.text_encoders import tfidf_matrix
from motet.report import partition_plots as plots

MAX_TEXTS, MAX_WORDS = 2_000, 3_000
SAMPLE_SEED = Seed(0, ("portrait",))


def plot_texts(
    partition: Partition, corpus: Corpus, clients: np.ndarray, title: str = ""
) -> Callable[[plots.Axes], None] | None:
    """Return a plot of a sample of texts, the same number for each client; None if the texts have too few words.

    `clients` are the indices of the colored clients. The texts of all others are one gray group.
    """
    from sklearn.decomposition import PCA

    rows, owners = _sample_rows(partition, clients)
    texts = read_texts(corpus, np.unique(rows))
    try:
        matrix = tfidf_matrix([texts[int(row)] for row in rows], MAX_WORDS, "english")
    except ValueError:  # the texts have no words
        return None
    if min(matrix.shape) < 3:
        return None
    seed = SAMPLE_SEED.derive("pca").to_int() % 2**32
    points = PCA(2, svd_solver="randomized", random_state=seed).fit_transform(matrix.toarray())
    names = [partition.clients[int(i)] for i in clients]
    return partial(plots.plot_scatter, points=points, groups=owners, names=names, title=title)


def _sample_rows(partition: Partition, clients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sample training rows, with the position of each row's owner in `clients`, or -1 for other clients."""
    rng = SAMPLE_SEED.derive("texts").numpy()
    per_client = MAX_TEXTS // (len(clients) + (len(clients) < len(partition)))
    own = [partition.train[int(i)] for i in clients]
    samples = [rng.permutation(rows)[:per_client] for rows in own]
    others = np.setdiff1d(partition.train.rows, np.concatenate(own))
    samples.append(rng.permutation(others)[:per_client])
    positions = [*range(len(clients)), -1]
    owners = [np.full(len(rows), position) for position, rows in zip(positions, samples, strict=True)]
    return np.concatenate(samples), np.concatenate(owners).astype(np.int64)
