"""Corpora that the package makes itself: small, learnable, seeded. What tests, the contract suite and the docs run on."""

from __future__ import annotations

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus

TOPICS = {
    "weather": "rain sun cloud storm wind snow fog heat frost breeze thunder drizzle",
    "sport": "goal match team coach player score league referee race medal stadium training",
    "food": "bread soup cheese apple pepper onion rice salad butter honey lemon garlic",
    "music": "song choir violin melody rhythm drum opera piano chord concert singer tune",
}
DOMAINS = {
    "news": "today officials report said according city people yesterday announced public",
    "mail": "dear thanks regards please attached meeting hello best friend soon",
    "forum": "lol think anyone really guys actually maybe stuff thread posted",
}
COMMON = [
    "the",
    "a",
    "of",
    "and",
    "to",
    "in",
    "is",
    "it",
    "that",
    "was",
    "for",
    "on",
    "with",
    "as",
    "at",
    "by",
    "this",
    "from",
    "they",
    "were",
]


def toy_classification(train: int = 600, test: int = 200, authors: int = 20) -> Corpus:
    """Four topics told by their words, in three domains, by twenty authors: a problem any method solves."""
    rng = Seed(0, ("toy-classification",)).numpy()
    topics, domains = list(TOPICS), list(DOMAINS)
    habit = rng.dirichlet(np.full(len(topics), 0.7), size=authors)  # an author writes mostly about a few topics
    columns: dict[str, list[str]] = {"text": [], "label": [], "domain": [], "client": []}
    for _ in range(train + test):
        author = int(rng.integers(authors))
        topic = topics[int(rng.choice(len(topics), p=habit[author]))]
        domain = domains[author % len(domains)]
        columns["text"].append(_text(rng, topic, domain))
        columns["label"].append(topic)
        columns["domain"].append(domain)
        columns["client"].append(f"author-{author:02d}")
    return Corpus("toy-classification", "classification", columns, train, "made by Motet")


def _text(rng: np.random.Generator, topic: str, domain: str) -> str:
    """Mostly common words, some of the domain, a few of the topic, now and then one of another topic."""
    other = list(TOPICS)[int(rng.integers(len(TOPICS)))]
    sources = [COMMON, DOMAINS[domain].split(), TOPICS[topic].split(), TOPICS[other].split()]
    picks = rng.choice(len(sources), size=int(rng.integers(6, 20)), p=[0.4, 0.15, 0.42, 0.03])
    return " ".join(str(rng.choice(sources[i])) for i in picks)
