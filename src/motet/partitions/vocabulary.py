"""Vocabulary shift: clients use different words. A topic is a part of the vocabulary whose words occur together."""

from __future__ import annotations

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.core.threads import single_thread
from motet.datasets.corpus import Corpus
from motet.partitions.dirichlet import ALPHA_HINT, dirichlet_split
from motet.partitions.partition import Partition, check_clients, check_positive
from motet.partitions.traits import Trait, topic_texts


def vocabulary(corpus: Corpus, seed: Seed, clients: int = 10, alpha: float = 1.0, topics: int = 10) -> Partition:
    """Each client has its own mixture of topics: words that occur together, found by factoring the counts (NMF)."""
    check_clients(clients, corpus.num_train)
    check_positive("alpha", alpha, ALPHA_HINT)
    trait = vocabulary_trait(corpus, seed.derive("trait"), topics).require_variety(corpus, "the vocabulary")
    train, test = dirichlet_split(corpus, seed.derive("vocabulary"), trait, clients, alpha)
    made = {"type": "vocabulary", "clients": clients, "alpha": alpha, **trait.settings, "seed": seed.root}
    return Partition(train, test, made, trait=trait)


def vocabulary_trait(corpus: Corpus, seed: Seed, topics: int = 10) -> Trait:
    """Each row's strongest topic, named by its three strongest words; 'none' for a row without any known word."""
    from sklearn.decomposition import NMF
    from sklearn.feature_extraction.text import TfidfVectorizer

    if topics < 2:
        raise ConfigError(f"partition.topics is {topics}; at least 2 are needed.")
    texts = list(topic_texts(corpus))
    few = corpus.num_train < 100
    words = TfidfVectorizer(
        max_features=5_000, min_df=1 if few else 2, max_df=0.5, stop_words="english", sublinear_tf=True
    )
    try:
        words.fit(texts[: corpus.num_train])
    except ValueError:
        raise ConfigError(
            f"partition: no word of {corpus.name} occurs in some texts and not in others; use uniform."
        ) from None
    counts = words.transform(texts)
    most = min(topics, *counts[: corpus.num_train].shape)
    factors = NMF(most, init="nndsvda", max_iter=100, tol=1e-3, random_state=seed.derive("nmf").to_int() % 2**32)
    with single_thread(blas=True):
        factors.fit(counts[: corpus.num_train])
        strength = factors.transform(counts)
    told = words.get_feature_names_out()
    names = [" ".join(told[np.argsort(-row, kind="stable")[:3]]) for row in factors.components_]
    silent = strength.max(1) <= 0
    codes = np.where(silent, most, strength.argmax(1))
    named = [*(f"{k:02d} {name}" for k, name in enumerate(names)), *(["none"] if silent.any() else [])]
    return Trait(np.array(named), codes.astype(np.int64), {"by": "vocabulary", "topics": most})
