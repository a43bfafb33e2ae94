"""Language skew: a client writes mostly in one language, or in one script."""

from __future__ import annotations

from typing import Literal

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.inspection.text_language import detect_language, detect_script
from motet.partitions.dirichlet import ALPHA_HINT, dirichlet_split
from motet.partitions.partition import Partition, check_clients, check_positive
from motet.partitions.traits import Trait, topic_texts


def language(
    corpus: Corpus, seed: Seed, clients: int = 10, alpha: float = 0.1, by: Literal["language", "script"] = "language"
) -> Partition:
    """Detect the language or script (by) of each text, and draw each client's languages from a Dirichlet."""
    check_clients(clients, corpus.num_train)
    check_positive("alpha", alpha, ALPHA_HINT)
    trait = language_trait(corpus) if by == "language" else script_trait(corpus)
    trait = trait.require_variety(corpus, f"the {by} of texts")
    train, test = dirichlet_split(corpus, seed.derive("language"), trait, clients, alpha)
    recipe = {"type": "language", "clients": clients, "alpha": alpha, **trait.settings, "seed": seed.root}
    return Partition(train, test, recipe, trait=trait)


def script_trait(corpus: Corpus) -> Trait:
    return Trait.from_values([detect_script(text) for text in topic_texts(corpus)], {"by": "script"})


def language_trait(corpus: Corpus) -> Trait:
    return Trait.from_values([detect_language(text) for text in topic_texts(corpus)], {"by": "language"})
