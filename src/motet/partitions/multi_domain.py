"""Many domains (AdaFD): each domain is a client with a label distribution of its own; a part of the texts is public.

    q_k ~ Dir(α·1) over the labels, one draw a domain; the domain is sub-sampled to q_k, as large as its labels allow
    public: 20 % of each client's training rows, by label, put together and shuffled; their labels are nobody's to see

The global test set is the corpus's own, or (`global_alpha`, the paper's 0.8) for each domain rows that nobody else has, by
another draw of labels and as many as its client is tested on.
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
    most: int | None = None,
    by: str = "label",
    global_alpha: float | None = None,
) -> Partition:
    """A domain a client, with a Dirichlet of labels within each, and a public part without labels split off (AdaFD)."""
    check_positive("alpha", alpha, "1: the paper's, 100: all labels alike")
    if not 0 <= public < 1:
        raise ConfigError(f"partition.public is {public}; it is a share of the training rows, 0 or more and below 1.")
    domains, where = corpus.factorize(column)
    trait, own = get_trait(corpus, by, seed), seed.derive("multi_domain")
    kinds = int(trait.codes[: corpus.num_train].max()) + 1
    q = sample_mixtures(np.full(kinds, 1.0), alpha, len(domains), own.derive("labels").numpy())
    sampled = DomainSampler(corpus, where, trait.codes, own)
    train = [sampled.rows(k, "train", q[k], most) for k in range(len(domains))]
    if empty := [str(d) for d, rows in zip(domains, train, strict=True) if not len(rows)]:
        raise ConfigError(
            f"partition: domain '{empty[0]}' has no training rows of the labels that alpha={alpha} drew for it; "
            "raise partition.alpha, or take another seed."
        )
    fewer = None if most is None else max(1, round(most * (len(corpus) / corpus.num_train - 1)))
    test = [sampled.rows(k, "test", q[k], fewer) for k in range(len(domains))]
    parts = [stratified_split(rows, trait.codes, public, own.derive("public", k)) for k, rows in enumerate(train)]
    seen = own.derive("public").numpy().permutation(np.concatenate([open_ for open_, _ in parts])) if public else None
    divided = ClientRows.from_lists([private for _, private in parts]), ClientRows.from_lists(test)
    held = None if global_alpha is None else sampled.elsewhere(divided, seen, kinds, global_alpha)
    drawn = {str(d): [round(float(x), 4) for x in row] for d, row in zip(domains, q, strict=True)}
    made = {
        "column": column,
        "alpha": alpha,
        "public": public,
        "most": most,
        **trait.settings,
        "global_alpha": global_alpha,
    }
    told = {**made, "labels": [str(n) for n in trait.names[:kinds]], "drawn": drawn, "seed": seed.root}
    return Partition(*divided, {"type": "multi_domain", **told}, NamedClients(domains), seen, held)


@dataclass(frozen=True, eq=False)
class DomainSampler:
    """Rows of one domain with labels as one wants them."""

    corpus: Corpus
    where: np.ndarray  # the domain of each row
    codes: np.ndarray  # the label of each row
    seed: Seed

    def rows(self, domain: int, side: str, q: np.ndarray, most: int | None) -> np.ndarray:
        first, last = (0, self.corpus.num_train) if side == "train" else (self.corpus.num_train, len(self.corpus))
        here = first + np.flatnonzero(self.where[first:last] == domain)
        return sample_matching(here, self.codes, q, self.seed.derive(side, domain), most)

    def elsewhere(
        self, divided: tuple[ClientRows, ClientRows], public: np.ndarray | None, kinds: int, alpha: float
    ) -> np.ndarray:
        """Rows that nobody has, of each domain as many as its client is tested on."""
        check_positive("global_alpha", alpha, "0.8: the paper's")
        free = np.ones(len(self.corpus), bool)
        for rows in (divided[0].rows, divided[1].rows, np.zeros(0, np.int64) if public is None else public):
            free[rows] = False
        q = sample_mixtures(np.full(kinds, 1.0), alpha, len(divided[1]), self.seed.derive("global labels").numpy())
        found = []
        for k, wanted in enumerate(divided[1].sizes):
            rows = np.flatnonzero(free & (self.where == k) & (self.codes < kinds))
            found.append(sample_matching(rows, self.codes, q[k], self.seed.derive("global", k), int(wanted)))
        if not sum(map(len, found)):
            raise ConfigError(
                "partition.global_alpha: every row is somebody's, so that none is left for a global test set."
            )
        return np.sort(np.concatenate(found))


def sample_matching(
    rows: np.ndarray, codes: np.ndarray, q: np.ndarray, seed: Seed, most: int | None = None
) -> np.ndarray:
    """The largest sample of the rows, or one of so many, whose labels are as q says."""
    available = np.bincount(codes[rows], minlength=len(q))[: len(q)]
    q = np.where(available > 0, q, 0)
    if q.sum() <= 0:
        return np.zeros(0, np.int64)
    q = q / q.sum()
    with np.errstate(divide="ignore"):
        size = int(np.where(q > 0.5 / max(1, len(rows)), available / np.maximum(q, 1e-300), np.inf).min())
    size = min(size, len(rows), most or len(rows))
    counts = np.minimum(largest_remainder(q * size, size), available)
    rng = seed.numpy()
    mixed = rng.permutation(rows)
    kept = [mixed[codes[mixed] == k][:n] for k, n in enumerate(counts)]
    return np.sort(np.concatenate(kept))


def stratified_split(rows: np.ndarray, codes: np.ndarray, share: float, seed: Seed) -> tuple[np.ndarray, np.ndarray]:
    """A share of the rows with the labels' own proportions, and the others."""
    kinds, counts = np.unique(codes[rows], return_counts=True)
    wanted = largest_remainder(counts * share, round(len(rows) * share))
    mixed = seed.numpy().permutation(rows)
    taken = np.sort(np.concatenate([mixed[codes[mixed] == k][:n] for k, n in zip(kinds, wanted, strict=True)]))
    return taken, np.setdiff1d(rows, taken)
