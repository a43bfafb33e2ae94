"""Language skew: a client writes mostly in one language, or in one script.

The script follows from the letters. Languages in Latin script are recognized by their most frequent words, which is
reliable for sentences but not for single words. All other texts are named by their script.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import lru_cache
from typing import Literal

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.dirichlet import ALPHA_HINT, dirichlet_split
from motet.partitions.partition import Partition, check_clients, check_positive
from motet.partitions.traits import Trait, topic_texts

FREQUENT_WORDS = {
    language: frozenset(words.split())
    for language, words in {
        "Dutch": "de het een van en niet dat voor zijn met ook maar wordt naar",
        "English": "the of and to is that it was for with as this are have",
        "French": "le les des est et que une dans pour qui pas sur avec sont",
        "German": "der die und das ist nicht ein mit auf den von zu sich auch",
        "Italian": "il di che è per una con non sono del della anche più gli",
        "Polish": "i w na się nie że jest do z to jak ale jego przez",
        "Portuguese": "o que não uma em os para com mas do da são ao você",
        "Spanish": "el que los una en por con para las del pero su está más",
        "Swedish": "och att det som en på är av för med till inte har den",
        "Turkish": "bir ve bu için de da ile çok ne gibi daha olarak var mi",
    }.items()
}
JAPANESE = ("HIRAGANA", "KATAKANA")
MAX_CHARACTERS = 400  # enough to recognize the language


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


def detect_script(text: str) -> str:
    """Return the script of most letters. A text in Han characters with some kana is Japanese."""
    counts = Counter(_letter_script(letter) for letter in text[:MAX_CHARACTERS] if letter.isalpha())
    if not counts:
        return "none"
    if any(kana in counts for kana in JAPANESE):
        counts["JAPANESE"] = sum(counts.pop(name, 0) for name in (*JAPANESE, "CJK"))
    return max(sorted(counts), key=counts.__getitem__).capitalize()


def detect_language(text: str) -> str:
    """Return the language of a text in Latin script, or the script if the language is unknown."""
    script = detect_script(text)
    if script != "Latin":
        return script
    words = Counter(text[:MAX_CHARACTERS].lower().split())
    scores = {
        name: sum(count for word, count in words.items() if word in frequent)
        for name, frequent in FREQUENT_WORDS.items()
    }
    best = max(sorted(scores), key=scores.__getitem__)
    return best if scores[best] else script


@lru_cache(maxsize=20_000)
def _letter_script(letter: str) -> str:
    return unicodedata.name(letter, "OTHER").split()[0].split("-")[0]
