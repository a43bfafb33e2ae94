"""Heterogeneity measures of a partition: label distances, label entropy, client sizes, vocabulary overlap.

Label distances are Jensen–Shannon *distances* (square roots of divergences) in nats over training and test rows, as in
FedNLP. Small clients differ by chance alone, so reports compare each number with a random partition of the same sizes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import Partition
from motet.partitions.traits import Trait, full_texts

MAX_CLIENTS = 300  # the number of pairs grows quadratically, so larger partitions are sampled
MAX_VOCABULARY_CLIENTS = 40
MAX_VOCABULARY_TEXTS = 50  # of each client
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class PartitionMeasures:
    """Means over pairs of clients (distance, Jaccard overlap) or over clients (entropy in nats)."""

    js_distance: float | None
    label_entropy: float | None
    size_gini: float
    vocabulary_overlap: float

    def to_dict(self) -> dict[str, float]:
        return {name: round(value, 4) for name, value in vars(self).items() if value is not None}


def measure_partition(
    partition: Partition, corpus: Corpus, trait: Trait | None, seed: Seed, *, at_random: bool = False
) -> PartitionMeasures:
    """Measure a partition, or (`at_random`) a random partition with the same client sizes."""
    order = _shuffle_rows(corpus, seed) if at_random else np.arange(len(corpus))
    distance = entropy = None
    if trait is not None:
        clients = sample_clients(partition, MAX_CLIENTS, seed)
        counts = label_counts(partition, Trait(trait.categories, trait.codes[order]), clients)
        ratios = label_ratios(counts[counts.sum(1) > 0])
        distance = mean_pairwise_distance(js_distances(ratios))
        entropy = float(row_entropies(ratios).mean()) if len(ratios) else 0.0
    overlap = vocabulary_overlap(partition, corpus, order, seed)
    return PartitionMeasures(distance, entropy, gini(partition.train.sizes), overlap)


def _shuffle_rows(corpus: Corpus, seed: Seed) -> np.ndarray:
    """Shuffle training and test rows separately: a difference between the two does not come from the partition."""
    rng = seed.derive("shuffled").numpy()
    train, test = rng.permutation(corpus.num_train), rng.permutation(len(corpus) - corpus.num_train)
    return np.concatenate([train, corpus.num_train + test])


def sample_clients(partition: Partition, limit: int, seed: Seed) -> np.ndarray:
    """Return the indices of all clients, or of `limit` random ones, in order."""
    count = len(partition)
    if count <= limit:
        return np.arange(count)
    return np.sort(seed.derive("clients").numpy().choice(count, limit, replace=False))


def label_counts(partition: Partition, trait: Trait, clients: np.ndarray) -> np.ndarray:
    """Count the labels of each client in its training and test rows, [clients, labels]."""
    counts = np.zeros((len(clients), len(trait.categories)), np.int64)
    for i, client in enumerate(clients):
        rows = np.concatenate([partition.train[client], partition.test[client]])
        counts[i] = np.bincount(trait.codes[rows], minlength=len(trait.categories))
    return counts


def label_ratios(counts: np.ndarray) -> np.ndarray:
    ratios: np.ndarray = counts / np.maximum(1, counts.sum(1, keepdims=True))
    return ratios


def row_entropies(ratios: np.ndarray) -> np.ndarray:
    """Return the entropy of each row, in nats."""
    with np.errstate(divide="ignore", invalid="ignore"):
        entropies: np.ndarray = -np.where(ratios > 0, ratios * np.log(ratios), 0).sum(-1)
    return entropies


def js_distances(ratios: np.ndarray) -> np.ndarray:
    """Return the Jensen–Shannon distances between all rows: √(H((p + q)/2) − (H(p) + H(q))/2)."""
    entropies = row_entropies(ratios)
    divergences = np.zeros((len(ratios), len(ratios)))
    for k in range(len(ratios)):  # row by row: memory grows with clients × labels, not clients² × labels
        divergences[k] = row_entropies((ratios[k] + ratios) / 2) - (entropies[k] + entropies) / 2
    distances = np.sqrt(np.maximum(0, (divergences + divergences.T) / 2))
    np.fill_diagonal(distances, 0)
    return distances


def mean_pairwise_distance(distances: np.ndarray) -> float:
    pairs = distances[np.triu_indices(len(distances), 1)]
    return float(pairs.mean()) if len(pairs) else 0.0


def order_by_distance(distances: np.ndarray) -> np.ndarray:
    """Return the clients in the order of their summed distance to all others, the most typical first."""
    return np.argsort(distances.sum(1), kind="stable")


def gini(sizes: np.ndarray) -> float:
    """Return the Gini coefficient: 0 if all sizes are equal, near 1 if one client has nearly everything."""
    ordered = np.sort(np.asarray(sizes, np.float64))
    count, total = len(ordered), ordered.sum()
    if not total:
        return 0.0
    return float((2 * np.arange(1, count + 1) - count - 1) @ ordered / (count * total))


def vocabulary_overlap(partition: Partition, corpus: Corpus, order: np.ndarray, seed: Seed) -> float:
    """Return the mean Jaccard index of the vocabularies of pairs of clients, from equally many texts of each."""
    nonempty = np.flatnonzero(partition.train.sizes > 0)
    rng = seed.derive("speakers").numpy()
    clients = np.sort(rng.choice(nonempty, min(len(nonempty), MAX_VOCABULARY_CLIENTS), replace=False))
    num_texts = int(min(MAX_VOCABULARY_TEXTS, np.median(partition.train.sizes[clients]))) if len(clients) else 0
    client_rows = [order[rng.permutation(partition.train[k])[:num_texts]] for k in clients]
    texts = read_texts(corpus, np.unique(np.concatenate(client_rows)) if client_rows else np.zeros(0, np.int64))
    vocabularies = [{w for row in rows for w in _WORD.findall(texts[int(row)].lower())} for rows in client_rows]
    overlaps = [len(a & b) / max(1, len(a | b)) for i, a in enumerate(vocabularies) for b in vocabularies[:i]]
    return float(np.mean(overlaps)) if overlaps else 1.0


def read_texts(corpus: Corpus, rows: np.ndarray) -> dict[int, str]:
    """Return all text of the given rows, by row, without reading the others."""
    if not len(rows):
        return {}
    columns = {name: [column[int(i)] for i in rows] for name, column in corpus.columns.items()}
    sample = Corpus(corpus.name, corpus.task, columns, len(rows))
    return dict(zip(rows.tolist(), full_texts(sample), strict=True))
