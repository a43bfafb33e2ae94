"""Vocabulary skew: clients use different words. A topic is a set of words that occur together."""

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
    """Find topics by matrix factorization (NMF), and draw each client's topics from a Dirichlet."""
    check_clients(clients, corpus.num_train)
    check_positive("alpha", alpha, ALPHA_HINT)
    trait = vocabulary_trait(corpus, seed.derive("trait"), topics).require_variety(corpus, "the vocabulary")
    train, test = dirichlet_split(corpus, seed.derive("vocabulary"), trait, clients, alpha)
    recipe = {"type": "vocabulary", "clients": clients, "alpha": alpha, **trait.settings, "seed": seed.root}
    return Partition(train, test, recipe, trait=trait)


def vocabulary_trait(corpus: Corpus, seed: Seed, topics: int = 10) -> Trait:
    """Return the strongest topic of each row, named by its three strongest words, or 'none' if no word is known."""
    from sklearn.decomposition import NMF
    from sklearn.feature_extraction.text import TfidfVectorizer

    if topics < 2:
        raise ConfigError(f"partition.topics is {topics}; it must be at least 2.")
    texts = list(topic_texts(corpus))
    min_df = 1 if corpus.num_train < 100 else 2
    vectorizer = TfidfVectorizer(max_features=5_000, min_df=min_df, max_df=0.5, stop_words="english", sublinear_tf=True)
    try:
        vectorizer.fit(texts[: corpus.num_train])
    except ValueError:
        raise ConfigError(
            f"partition: no word of {corpus.name} occurs in some texts and not in others. Use uniform."
        ) from None
    matrix = vectorizer.transform(texts)
    count = min(topics, *matrix[: corpus.num_train].shape)
    nmf = NMF(count, init="nndsvda", max_iter=100, tol=1e-3, random_state=seed.derive("nmf").to_int() % 2**32)
    with single_thread(blas=True):
        nmf.fit(matrix[: corpus.num_train])
        weights = nmf.transform(matrix)
    words = vectorizer.get_feature_names_out()
    names = [f"{k:02d} {' '.join(words[np.argsort(-row, kind='stable')[:3]])}" for k, row in enumerate(nmf.components_)]
    has_no_topic = weights.max(1) <= 0
    if has_no_topic.any():
        names.append("none")
    codes = np.where(has_no_topic, count, weights.argmax(1)).astype(np.int64)
    return Trait(np.array(names), codes, {"by": "vocabulary", "topics": count})
