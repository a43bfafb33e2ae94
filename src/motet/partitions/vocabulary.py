"""Vocabulary shift: clients use different words. A topic is a part of the vocabulary whose words occur together."""

from __future__ import annotations

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.dirichlet import NEARLY_ONE, shifted
from motet.partitions.partition import Partition, check_clients, check_positive
from motet.partitions.text_encoders import one_thread
from motet.partitions.traits import Trait, texts_of


def vocabulary(corpus: Corpus, seed: Seed, clients: int = 10, alpha: float = 1.0, topics: int = 10) -> Partition:
    """Each client has its own mixture of topics: words that occur together, found by factoring the counts (NMF)."""
    check_clients(clients, corpus.train)
    check_positive("alpha", alpha, NEARLY_ONE)
    trait = vocabulary_trait(corpus, seed.derive("trait"), topics).varied(corpus, "the vocabulary")
    train, test = shifted(corpus, seed.derive("vocabulary"), trait, clients, alpha)
    made = {"type": "vocabulary", "clients": clients, "alpha": alpha, **trait.told, "seed": seed.root}
    return Partition(train, test, made, kinds=trait)


def vocabulary_trait(corpus: Corpus, seed: Seed, topics: int = 10) -> Trait:
    """Each row's strongest topic, named by its three strongest words; 'none' for a row without any known word."""
    from sklearn.decomposition import NMF
    from sklearn.feature_extraction.text import TfidfVectorizer

    if topics < 2:
        raise ConfigError(f"partition.topics is {topics}; at least 2 are needed.")
    texts = list(texts_of(corpus))
    few = corpus.train < 100
    words = TfidfVectorizer(
        max_features=5_000, min_df=1 if few else 2, max_df=0.5, stop_words="english", sublinear_tf=True
    )
    try:
        words.fit(texts[: corpus.train])
    except ValueError:
        raise ConfigError(
            f"partition: no word of {corpus.name} occurs in some texts and not in others; use uniform."
        ) from None
    counts = words.transform(texts)
    most = min(topics, *counts[: corpus.train].shape)
    factors = NMF(most, init="nndsvda", max_iter=100, tol=1e-3, random_state=seed.derive("nmf").to_int() % 2**32)
    with one_thread():
        factors.fit(counts[: corpus.train])
        strength = factors.transform(counts)
    told = words.get_feature_names_out()
    names = [" ".join(told[np.argsort(-row, kind="stable")[:3]]) for row in factors.components_]
    silent = strength.max(1) <= 0
    codes = np.where(silent, most, strength.argmax(1))
    named = [*(f"{k:02d} {name}" for k, name in enumerate(names)), *(["none"] if silent.any() else [])]
    return Trait(np.array(named), codes.astype(np.int64), {"by": "vocabulary", "topics": most})
