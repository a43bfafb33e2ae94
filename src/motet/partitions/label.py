"""Label skew (FedNLP): each client's label distribution is drawn from a Dirichlet around the prior."""

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
    """Draw each client's labels, or any other trait (by), from a Dirichlet; smaller alpha is more skewed (FedNLP)."""
    check_clients(clients, corpus.num_train)
    check_positive("alpha", alpha, ALPHA_HINT)
    trait = get_trait(corpus, by, seed)
    train, test = dirichlet_split(
        corpus, seed.derive("label"), trait, clients, alpha, rounding=rounding, independent_test=independent_test
    )
    recipe = {
        "type": "label",
        "clients": clients,
        "alpha": alpha,
        **trait.settings,
        "rounding": rounding,
        "independent_test": independent_test,
        "seed": seed.root,
    }
    return Partition(train, test, recipe, trait=trait.unless_column(corpus))
