"""Label and quantity shift together (FedNLP): sizes z ~ Dir(β) first, then labels q ~ Dir(α·p) for clients of those sizes."""

from __future__ import annotations

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.dirichlet import NEARLY_ONE, Rounding, shifted
from motet.partitions.partition import Partition, check_clients, check_positive
from motet.partitions.quantity import VERY_DIFFERENT, cuts, size_shares
from motet.partitions.traits_by_name import trait_of


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
    check_clients(clients, corpus.train)
    check_positive("alpha", alpha, NEARLY_ONE)
    check_positive("beta", beta, VERY_DIFFERENT)
    own, trait = seed.derive("label_quantity"), trait_of(corpus, by, seed)
    z = size_shares(beta, clients, corpus.train, own.derive("sizes").numpy())
    train, test = shifted(corpus, own, trait, clients, alpha, rounding, independent_test, lambda rows: cuts(z, rows))
    made = {"clients": clients, "alpha": alpha, "beta": beta, **trait.told}
    further = {"rounding": rounding, "independent_test": independent_test, "seed": seed.root}
    return Partition(train, test, {"type": "label_quantity", **made, **further}, kinds=trait.unless_told(corpus))
