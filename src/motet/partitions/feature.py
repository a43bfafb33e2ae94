"""Feature shift (FedNLP): texts are encoded and grouped by K-means; groups are dealt out like labels, or are the clients."""

from __future__ import annotations

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.core.threads import single_thread
from motet.datasets.corpus import Corpus
from motet.partitions.dirichlet import ALPHA_HINT, Rounding, dirichlet_split
from motet.partitions.natural import split_by_trait
from motet.partitions.partition import Partition, check_clients, check_positive
from motet.partitions.text_encoders import encode_texts, resolve_encoder
from motet.partitions.traits import Trait, topic_texts


def feature(
    corpus: Corpus,
    seed: Seed,
    clients: int = 10,
    alpha: float = 1.0,
    clusters: int = 10,
    encoder: str = "auto",
    rounding: Rounding = "largest_remainder",
    independent_test: bool = False,
) -> Partition:
    """Each client has its own mixture of what texts are about: K-means over sentence vectors, dealt out like labels."""
    check_clients(clients, corpus.num_train)
    check_positive("alpha", alpha, ALPHA_HINT)
    trait = cluster_trait(corpus, seed.derive("trait"), clusters, encoder)
    train, test = dirichlet_split(corpus, seed.derive("feature"), trait, clients, alpha, rounding, independent_test)
    made = {
        "clients": clients,
        "alpha": alpha,
        **trait.settings,
        "rounding": rounding,
        "independent_test": independent_test,
    }
    return Partition(train, test, {"type": "feature", **made, "seed": seed.root}, trait=trait)


def clusters(corpus: Corpus, seed: Seed, clients: int = 10, encoder: str = "auto") -> Partition:
    """Each client is one K-means cluster of sentence vectors: people who talk about one thing each."""
    check_clients(clients, corpus.num_train)
    trait = cluster_trait(corpus, seed.derive("trait"), clients, encoder)
    train, test, names = split_by_trait(corpus, trait)
    made = {"type": "clusters", "clients": clients, **trait.settings, "seed": seed.root}
    return Partition(train, test, made, names, trait=trait)


def cluster_trait(corpus: Corpus, seed: Seed, count: int = 10, encoder: str = "auto") -> Trait:
    """The cluster of each row; centres are found on the training rows, test rows go to the nearest."""
    from sklearn.cluster import KMeans

    if not 2 <= count <= corpus.num_train:
        raise ConfigError(
            f"partition.clusters is {count}; expected 2 to {corpus.num_train:,}, the number of training rows."
        )
    chosen = resolve_encoder(encoder)
    vectors = encode_texts(list(topic_texts(corpus)), chosen, seed)
    different = len(np.unique(vectors[: corpus.num_train], axis=0)) if corpus.num_train < 10 * count else count
    if different < count:
        raise ConfigError(f"partition.clusters is {count}, but only {different} texts differ; ask for at most that.")
    with single_thread(blas=True):
        means = KMeans(count, n_init=1, random_state=seed.derive("k-means").to_int() % 2**32).fit(
            vectors[: corpus.num_train]
        )
        nearest = means.predict(vectors)
    width = len(str(count - 1))
    names = np.array([f"cluster-{k:0{width}d}" for k in range(count)])
    return Trait(names, nearest.astype(np.int64), {"by": "cluster", "clusters": count, "encoder": chosen})
