"""Label shift (FedNLP): each client's labels follow a Dirichlet draw around the prior; small α, few labels a client."""

from __future__ import annotations

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.dirichlet import ALPHA_HINT, Rounding, dirichlet_split
from motet.partitions.partition import Partition, check_clients, check_positive
from motet.partitions.traits_by_name import get_trait


def label(
    corpus: Corpus,
    seed: Seed,
    clients: int = 10,
    alpha: float = 1.0,
    by: str = "label",
    rounding: Rounding = "largest_remainder",
    independent_test: bool = False,
) -> Partition:
    """Each client has its own mixture of labels, or of any column (by), drawn from a Dirichlet; small alpha, few a client."""
    check_clients(clients, corpus.num_train)
    check_positive("alpha", alpha, ALPHA_HINT)
    trait = get_trait(corpus, by, seed)
    train, test = dirichlet_split(corpus, seed.derive("label"), trait, clients, alpha, rounding, independent_test)
    made = {
        "clients": clients,
        "alpha": alpha,
        **trait.settings,
        "rounding": rounding,
        "independent_test": independent_test,
    }
    return Partition(train, test, {"type": "label", **made, "seed": seed.root}, trait=trait.unless_column(corpus))
