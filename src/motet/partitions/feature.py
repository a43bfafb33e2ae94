"""Feature skew (FedNLP): texts are embedded and clustered with K-means; clients differ in their clusters."""

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
    """Cluster text embeddings with K-means, and draw each client's clusters from a Dirichlet (FedNLP)."""
    check_clients(clients, corpus.num_train)
    check_positive("alpha", alpha, ALPHA_HINT)
    trait = cluster_trait(corpus, seed.derive("trait"), clusters, encoder)
    train, test = dirichlet_split(
        corpus, seed.derive("feature"), trait, clients, alpha, rounding=rounding, independent_test=independent_test
    )
    recipe = {
        "type": "feature",
        "clients": clients,
        "alpha": alpha,
        **trait.settings,
        "rounding": rounding,
        "independent_test": independent_test,
        "seed": seed.root,
    }
    return Partition(train, test, recipe, trait=trait)


def clusters(corpus: Corpus, seed: Seed, clients: int = 10, encoder: str = "auto") -> Partition:
    """Make each K-means cluster of text embeddings a client (FedNLP)."""
    check_clients(clients, corpus.num_train)
    trait = cluster_trait(corpus, seed.derive("trait"), clients, encoder)
    train, test, client_names = split_by_trait(corpus, trait)
    recipe = {"type": "clusters", "clients": clients, **trait.settings, "seed": seed.root}
    return Partition(train, test, recipe, client_names, trait=trait)


def cluster_trait(corpus: Corpus, seed: Seed, count: int = 10, encoder: str = "auto") -> Trait:
    """Return the K-means cluster of each row. The centers are fitted on the training rows."""
    from sklearn.cluster import KMeans

    if not 2 <= count <= corpus.num_train:
        raise ConfigError(
            f"partition.clusters is {count}; expected 2 to {corpus.num_train:,}, the number of training rows."
        )
    encoder = resolve_encoder(encoder)
    vectors = encode_texts(list(topic_texts(corpus)), encoder, seed)
    train_vectors = vectors[: corpus.num_train]
    distinct = len(np.unique(train_vectors, axis=0)) if corpus.num_train < 10 * count else count
    if distinct < count:
        raise ConfigError(
            f"partition.clusters is {count}, but there are only {distinct} distinct texts. Ask for at most that many."
        )
    with single_thread(blas=True):
        kmeans = KMeans(count, n_init=1, random_state=seed.derive("k-means").to_int() % 2**32).fit(train_vectors)
        codes = kmeans.predict(vectors)
    width = len(str(count - 1))
    names = np.array([f"cluster-{k:0{width}d}" for k in range(count)])
    return Trait(names, codes.astype(np.int64), {"by": "cluster", "clusters": count, "encoder": encoder})
