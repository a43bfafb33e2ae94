"""How uneven a partition is, in numbers: distance between clients' labels, entropy, sizes, words in common.

Distances are Jensen–Shannon *distances* (the root of the divergence) in nats, over training and test rows together, as in
FedNLP's figures. Small clients differ by chance alone, so each number stands beside what the same sizes give at random.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import Partition
from motet.partitions.traits import Trait, full_texts

MAX_CLIENTS = 300  # pairs grow with the square; more are sampled
MOST_SPEAKERS, MOST_TEXTS = 40, 50  # clients, and texts of each, whose words are compared
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class PartitionMeasures:
    """`js_distance`: mean over pairs. `label_entropy`: mean over clients, in nats. `vocabulary_overlap`: mean Jaccard index."""

    js_distance: float | None
    label_entropy: float | None
    size_gini: float
    vocabulary_overlap: float

    def plain(self) -> dict[str, float]:
        return {name: round(value, 4) for name, value in vars(self).items() if value is not None}


def measure_partition(
    partition: Partition, corpus: Corpus, trait: Trait | None, seed: Seed, *, at_random: bool = False
) -> PartitionMeasures:
    """The numbers of a partition; `at_random`: of rows shuffled over clients of the same sizes."""
    order = _shuffled(corpus, seed) if at_random else np.arange(len(corpus))
    distance = entropy = None
    if trait is not None:
        chosen = sample_clients(partition, MAX_CLIENTS, seed)
        counts = label_counts(partition, Trait(trait.names, trait.codes[order]), chosen)
        ratios = label_ratios(counts[counts.sum(1) > 0])
        distance = mean_pairwise_distance(js_distances(ratios))
        entropy = float(row_entropies(ratios).mean()) if len(ratios) else 0.0
    overlap = vocabulary_overlap(partition, corpus, order, seed)
    return PartitionMeasures(distance, entropy, gini(partition.train.sizes), overlap)


def _shuffled(corpus: Corpus, seed: Seed) -> np.ndarray:
    """Training rows among themselves, and test rows: the two may differ, which is no doing of the clients'."""
    rng = seed.derive("shuffled").numpy()
    return np.concatenate(
        [rng.permutation(corpus.num_train), corpus.num_train + rng.permutation(len(corpus) - corpus.num_train)]
    )


def sample_clients(partition: Partition, most: int, seed: Seed) -> np.ndarray:
    """All clients, or so many drawn at random, in their order."""
    count = len(partition)
    if count <= most:
        return np.arange(count)
    return np.sort(seed.derive("clients").numpy().choice(count, most, replace=False))


def label_counts(partition: Partition, trait: Trait, clients: np.ndarray) -> np.ndarray:
    """How often each label occurs at each of these clients, in training and test rows together."""
    found = np.zeros((len(clients), len(trait.names)), np.int64)
    for at, client in enumerate(clients):
        rows = np.concatenate([partition.train[client], partition.test[client]])
        found[at] = np.bincount(trait.codes[rows], minlength=len(trait.names))
    return found


def label_ratios(counts: np.ndarray) -> np.ndarray:
    ratios: np.ndarray = counts / np.maximum(1, counts.sum(1, keepdims=True))
    return ratios


def row_entropies(ratios: np.ndarray) -> np.ndarray:
    """In nats, a number a row."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: np.ndarray = -np.where(ratios > 0, ratios * np.log(ratios), 0).sum(-1)
    return found


def js_distances(ratios: np.ndarray) -> np.ndarray:
    """Jensen–Shannon distances between all rows: √(H((p + q)/2) − (H(p) + H(q))/2)."""
    own = row_entropies(ratios)
    found = np.zeros((len(ratios), len(ratios)))
    for k in range(len(ratios)):  # a row at a time: memory grows with clients × labels, not with its square
        found[k] = row_entropies((ratios[k] + ratios) / 2) - (own[k] + own) / 2
    found = np.sqrt(np.maximum(0, (found + found.T) / 2))
    np.fill_diagonal(found, 0)
    return found


def mean_pairwise_distance(matrix: np.ndarray) -> float:
    """Over all pairs."""
    pairs = matrix[np.triu_indices(len(matrix), 1)]
    return float(pairs.mean()) if len(pairs) else 0.0


def order_by_distance(matrix: np.ndarray) -> np.ndarray:
    """Clients in order of how far they are from all others together, the most ordinary first."""
    return np.argsort(matrix.sum(1), kind="stable")


def gini(sizes: np.ndarray) -> float:
    """0: all have the same. Near 1: one has nearly all."""
    ordered = np.sort(np.asarray(sizes, np.float64))
    count, total = len(ordered), ordered.sum()
    if not total:
        return 0.0
    return float((2 * np.arange(1, count + 1) - count - 1) @ ordered / (count * total))


def vocabulary_overlap(partition: Partition, corpus: Corpus, order: np.ndarray, seed: Seed) -> float:
    """How many of two clients' words both use: the mean Jaccard index over pairs, from as many texts of each."""
    able = np.flatnonzero(partition.train.sizes > 0)
    rng = seed.derive("speakers").numpy()
    speakers = np.sort(rng.choice(able, min(len(able), MOST_SPEAKERS), replace=False))
    each = int(min(MOST_TEXTS, np.median(partition.train.sizes[speakers]))) if len(speakers) else 0
    picked = [order[rng.permutation(partition.train[k])[:each]] for k in speakers]
    wanted = np.unique(np.concatenate(picked)) if picked else np.zeros(0, np.int64)
    texts = read_texts(corpus, wanted)
    words = [{w for row in rows for w in _WORD.findall(texts[int(row)].lower())} for rows in picked]
    pairs = [len(a & b) / max(1, len(a | b)) for i, a in enumerate(words) for b in words[:i]]
    return float(np.mean(pairs)) if pairs else 1.0


def read_texts(corpus: Corpus, rows: np.ndarray) -> dict[int, str]:
    """All that is written in a few rows, in as much time as those few take."""
    few = {name: [column[int(i)] for i in rows] for name, column in corpus.columns.items()}
    return (
        dict(zip(rows.tolist(), full_texts(Corpus(corpus.name, corpus.task, few, len(rows))), strict=True))
        if len(rows)
        else {}
    )
