"""Multi-domain partition (AdaFD): each domain is a client with its own label distribution; some texts are public.

    q_k ~ Dir(α·1) over the labels, one draw per domain; the domain is subsampled to match q_k, as large as possible
    public: 20% of each client's training rows, stratified by label, concatenated and shuffled; labels are not shared

By default, the global test set is the test set of the corpus. With `global_alpha` (0.8 in the paper), it is drawn from
the rows that no client has: for each domain as many rows as its client's test set, with another label distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.dirichlet import largest_remainder, sample_mixtures
from motet.partitions.partition import ClientRows, NamedClients, Partition, check_positive
from motet.partitions.traits_by_name import get_trait


def multi_domain(
    corpus: Corpus,
    seed: Seed,
    column: str = "domain",
    alpha: float = 1.0,
    public: float = 0.2,
    max_examples: int | None = None,
    by: str = "label",
    global_alpha: float | None = None,
) -> Partition:
    """Make each domain a client with labels drawn from a Dirichlet, and hold out unlabeled public texts (AdaFD)."""
    check_positive("alpha", alpha, "1: as in the paper, 100: all labels alike")
    if not 0 <= public < 1:
        raise ConfigError(f"partition.public is {public}; expected a share of the training rows from 0 to below 1.")
    domains, row_domains = corpus.factorize(column)
    trait = get_trait(corpus, by, seed)
    partition_seed = seed.derive("multi_domain")
    num_labels = int(trait.codes[: corpus.num_train].max()) + 1
    q = sample_mixtures(np.full(num_labels, 1.0), alpha, len(domains), partition_seed.derive("labels").numpy())
    sampler = DomainSampler(corpus, row_domains, trait.codes, partition_seed)
    sampled = [sampler.sample(k, "train", q[k], max_examples) for k in range(len(domains))]
    if empty := [str(d) for d, rows in zip(domains, sampled, strict=True) if not len(rows)]:
        raise ConfigError(
            f"partition: domain '{empty[0]}' has no training rows with the labels that alpha={alpha} drew for it. "
            "Raise partition.alpha, or use another seed."
        )
    train, public_rows = _hold_out_public(sampled, trait.codes, public, partition_seed.derive("public"))
    max_test = None if max_examples is None else max(1, round(max_examples * (len(corpus) / corpus.num_train - 1)))
    test = ClientRows.from_lists([sampler.sample(k, "test", q[k], max_test) for k in range(len(domains))])
    global_test = None
    if global_alpha is not None:
        global_test = sampler.sample_global_test(train, test, public_rows, num_labels, global_alpha)
    drawn = {str(d): [round(float(x), 4) for x in row] for d, row in zip(domains, q, strict=True)}
    labels = [str(name) for name in trait.categories[:num_labels]]
    options = {"column": column, "alpha": alpha, "public": public, "max_examples": max_examples, **trait.settings}
    draws = {"global_alpha": global_alpha, "labels": labels, "drawn": drawn, "seed": seed.root}
    recipe = {"type": "multi_domain", **options, **draws}
    return Partition(train, test, recipe, NamedClients(domains), public=public_rows, global_test=global_test)


def _hold_out_public(
    clients: list[np.ndarray], row_labels: np.ndarray, share: float, seed: Seed
) -> tuple[ClientRows, np.ndarray | None]:
    """Return the private rows of each client, and the public rows of all clients in random order."""
    parts = [stratified_split(rows, row_labels, share, seed.derive(k)) for k, rows in enumerate(clients)]
    private = ClientRows.from_lists([rows for _, rows in parts])
    public = seed.numpy().permutation(np.concatenate([rows for rows, _ in parts])) if share else None
    return private, public


@dataclass(frozen=True, eq=False)
class DomainSampler:
    """Samples rows of a domain with a given label distribution."""

    corpus: Corpus
    row_domains: np.ndarray
    row_labels: np.ndarray
    seed: Seed

    def sample(self, domain: int, split: str, q: np.ndarray, limit: int | None) -> np.ndarray:
        start, stop = (0, self.corpus.num_train) if split == "train" else (self.corpus.num_train, len(self.corpus))
        rows = start + np.flatnonzero(self.row_domains[start:stop] == domain)
        return sample_matching(rows, self.row_labels, q, self.seed.derive(split, domain), limit)

    def sample_global_test(
        self, train: ClientRows, test: ClientRows, public: np.ndarray | None, num_labels: int, alpha: float
    ) -> np.ndarray:
        """Sample unused rows of each domain, as many as its client has test rows."""
        check_positive("global_alpha", alpha, "0.8: as in the paper")
        is_free = np.ones(len(self.corpus), bool)
        for rows in (train.rows, test.rows, np.zeros(0, np.int64) if public is None else public):
            is_free[rows] = False
        q = sample_mixtures(np.full(num_labels, 1.0), alpha, len(test), self.seed.derive("global labels").numpy())
        samples = []
        for k, size in enumerate(test.sizes):
            rows = np.flatnonzero(is_free & (self.row_domains == k) & (self.row_labels < num_labels))
            samples.append(sample_matching(rows, self.row_labels, q[k], self.seed.derive("global", k), int(size)))
        if not sum(map(len, samples)):
            raise ConfigError(
                "partition.global_alpha: all rows belong to clients or are public, so there is no global test set. "
                "Set partition.max_examples to leave some rows."
            )
        return np.sort(np.concatenate(samples))


def sample_matching(
    rows: np.ndarray, row_labels: np.ndarray, q: np.ndarray, seed: Seed, limit: int | None = None
) -> np.ndarray:
    """Sample as many rows as possible, at most `limit`, such that their labels follow the distribution q."""
    available = np.bincount(row_labels[rows], minlength=len(q))[: len(q)]
    q = np.where(available > 0, q, 0)
    if q.sum() <= 0:
        return np.zeros(0, np.int64)
    q = q / q.sum()
    with np.errstate(divide="ignore"):
        size = int(np.where(q > 0.5 / max(1, len(rows)), available / np.maximum(q, 1e-300), np.inf).min())
    size = min(size, len(rows), limit or len(rows))
    counts = np.minimum(largest_remainder(q * size, size), available)
    shuffled = seed.numpy().permutation(rows)
    return np.sort(np.concatenate([shuffled[row_labels[shuffled] == k][:n] for k, n in enumerate(counts)]))


def stratified_split(
    rows: np.ndarray, row_labels: np.ndarray, share: float, seed: Seed
) -> tuple[np.ndarray, np.ndarray]:
    """Split off a share of the rows with the same label proportions; return it and the remaining rows."""
    labels, counts = np.unique(row_labels[rows], return_counts=True)
    quotas = largest_remainder(counts * share, round(len(rows) * share))
    shuffled = seed.numpy().permutation(rows)
    first = np.concatenate([shuffled[row_labels[shuffled] == k][:n] for k, n in zip(labels, quotas, strict=True)])
    first = np.sort(first)
    return first, np.setdiff1d(rows, first)
