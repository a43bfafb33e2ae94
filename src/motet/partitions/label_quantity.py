"""Label and quantity skew (FedNLP): sizes z ~ Dir(β), then labels q ~ Dir(α·p) for clients of these sizes."""

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
    """Draw both the labels (alpha) and the size (beta) of each client from Dirichlet distributions (FedNLP)."""
    check_clients(clients, corpus.num_train)
    check_positive("alpha", alpha, ALPHA_HINT)
    check_positive("beta", beta, BETA_HINT)
    trait = get_trait(corpus, by, seed)
    partition_seed = seed.derive("label_quantity")
    shares = sample_size_shares(beta, clients, corpus.num_train, partition_seed.derive("sizes").numpy())
    train, test = dirichlet_split(
        corpus,
        partition_seed,
        trait,
        clients,
        alpha,
        rounding=rounding,
        independent_test=independent_test,
        sizes_for=lambda examples: sizes_from_shares(shares, examples),
    )
    recipe = {
        "type": "label_quantity",
        "clients": clients,
        "alpha": alpha,
        "beta": beta,
        **trait.settings,
        "rounding": rounding,
        "independent_test": independent_test,
        "seed": seed.root,
    }
    return Partition(train, test, recipe, trait=trait.unless_column(corpus))
