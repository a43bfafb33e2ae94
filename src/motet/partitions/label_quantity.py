"""Label and quantity shift together (FedNLP): sizes z ~ Dir(β) first, then labels q ~ Dir(α·p) for clients of those sizes."""

from __future__ import annotations

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.dirichlet import ALPHA_HINT, Rounding, dirichlet_split
from motet.partitions.partition import Partition, check_clients, check_positive
from motet.partitions.quantity import BETA_HINT, sample_size_shares, sizes_from_shares
from motet.partitions.traits_by_name import get_trait


def label_quantity(
    corpus: Corpus,
    seed: Seed,
    clients: int = 10,
    alpha: float = 1.0,
    beta: float = 1.0,
    by: str = "label",
    rounding: Rounding = "largest_remainder",
    independent_test: bool = False,
) -> Partition:
    """Clients differ in their labels (alpha) and in how many examples they have (beta)."""
    check_clients(clients, corpus.num_train)
    check_positive("alpha", alpha, ALPHA_HINT)
    check_positive("beta", beta, BETA_HINT)
    own, trait = seed.derive("label_quantity"), get_trait(corpus, by, seed)
    z = sample_size_shares(beta, clients, corpus.num_train, own.derive("sizes").numpy())
    train, test = dirichlet_split(
        corpus, own, trait, clients, alpha, rounding, independent_test, lambda rows: sizes_from_shares(z, rows)
    )
    made = {"clients": clients, "alpha": alpha, "beta": beta, **trait.settings}
    further = {"rounding": rounding, "independent_test": independent_test, "seed": seed.root}
    return Partition(train, test, {"type": "label_quantity", **made, **further}, trait=trait.unless_column(corpus))
