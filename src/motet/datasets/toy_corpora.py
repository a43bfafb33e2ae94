"""Corpora that the package makes itself: small, learnable, seeded, one for each formulation.

What tests, the contract suite and the docs run on. Each has a domain and natural clients: authors who write mostly about a few
topics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import TASK_COLUMNS, Corpus

TOPICS = {
    "weather": [
        "rain",
        "sun",
        "cloud",
        "storm",
        "wind",
        "snow",
        "fog",
        "heat",
        "frost",
        "breeze",
        "thunder",
        "drizzle",
    ],
    "sport": [
        "goal",
        "match",
        "team",
        "coach",
        "player",
        "score",
        "league",
        "referee",
        "race",
        "medal",
        "stadium",
        "training",
    ],
    "food": [
        "bread",
        "soup",
        "cheese",
        "apple",
        "pepper",
        "onion",
        "rice",
        "salad",
        "butter",
        "honey",
        "lemon",
        "garlic",
    ],
    "music": [
        "song",
        "choir",
        "violin",
        "melody",
        "rhythm",
        "drum",
        "opera",
        "piano",
        "chord",
        "concert",
        "singer",
        "tune",
    ],
}
DOMAINS = {
    "news": ["today", "officials", "report", "said", "according", "city", "people", "yesterday", "announced", "public"],
    "mail": ["dear", "thanks", "regards", "please", "attached", "meeting", "hello", "best", "friend", "soon"],
    "forum": ["lol", "think", "anyone", "really", "guys", "actually", "maybe", "stuff", "thread", "posted"],
}
COMMON = "the a of and to in is it that was for on with as at by this from they were".split()  # noqa: SIM905
PEOPLE = [
    "Anna Berg",
    "Tom Okafor",
    "Mei Lin",
    "Juan Diaz",
    "Sara Cohen",
    "Ivan Petrov",
    "Lena",
    "Omar",
    "Ruth",
    "Kofi",
]
PLACES = ["Oslo", "Lagos", "New Delhi", "Quito", "Cape Town", "Kyoto", "Lima", "Tunis", "Riga", "Perth"]
THINGS = {
    "colour": ["red", "green", "blue", "yellow", "purple", "orange"],
    "animal": ["cat", "horse", "eagle", "salmon", "tiger", "rabbit"],
    "number": ["two", "three", "seven", "twelve", "forty", "ninety"],
}
PRAISE = ["good", "great", "lovely", "fine", "splendid", "happy"]
BLAME = ["bad", "awful", "dull", "poor", "dreadful", "sad"]


@dataclass(frozen=True)
class Author:
    name: str
    domain: str
    habit: np.ndarray  # how likely each topic is


def toy_classification(train: int = 600, test: int = 200, authors: int = 20) -> Corpus:
    """Made up: four topics told by their words, in three domains, by twenty authors."""

    def example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        topic = _topic(rng, author)
        return {"text": _prose(rng, topic, author.domain), "label": topic}

    return _corpus("toy-classification", "classification", example, train, test, authors)


def toy_pairs(train: int = 900, test: int = 200, authors: int = 20) -> Corpus:
    """Made up: does the second sentence name the topic of the first? entailment or not_entailment."""

    def example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        topic = _topic(rng, author)
        right = bool(rng.random() < 0.5)
        claim = topic if right else str(rng.choice([t for t in TOPICS if t != topic]))
        words = rng.choice(TOPICS[topic], size=3).tolist() + rng.choice(DOMAINS[author.domain], size=2).tolist()
        label = "entailment" if right else "not_entailment"
        return {"text": " ".join(words), "second": f"it is about {claim}", "label": label}

    return _corpus("toy-pairs", "classification", example, train, test, authors)


def toy_regression(train: int = 600, test: int = 200, authors: int = 20) -> Corpus:
    """Made up: how much more praise than blame is in a text, from −2 to 2."""

    def example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        share = rng.random()
        tone = [str(rng.choice(PRAISE if rng.random() < share else BLAME)) for _ in range(6)]
        words = [*tone, *rng.choice(COMMON, size=4).tolist(), *rng.choice(DOMAINS[author.domain], size=2).tolist()]
        rng.shuffle(words)
        score = 4 * sum(w in PRAISE for w in tone) / len(tone) - 2
        return {"text": " ".join(words), "score": score}

    return _corpus("toy-regression", "regression", example, train, test, authors)


def toy_tagging(train: int = 400, test: int = 150, authors: int = 20) -> Corpus:
    """Made up: people (PER) and places (LOC) of one or two words in short sentences, tagged B-X, I-X, O."""

    def example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        words: list[str] = []
        tags: list[str] = []
        for _ in range(int(rng.integers(3, 7))):
            kind = str(rng.choice(["O", "O", "PER", "LOC"]))
            source = {"O": [*COMMON, *DOMAINS[author.domain]], "PER": PEOPLE, "LOC": PLACES}[kind]
            piece = str(rng.choice(source)).split()
            words += piece
            tags += ["O"] if kind == "O" else [f"B-{kind}", *[f"I-{kind}"] * (len(piece) - 1)]
            words.append(str(rng.choice(COMMON)))  # two names never touch
            tags.append("O")
        return {"words": words, "tags": tags}

    return _corpus("toy-tagging", "tagging", example, train, test, authors)


def toy_qa(train: int = 700, test: int = 150, authors: int = 20) -> Corpus:
    """Made up: a colour, an animal and a number somewhere in a text; which one is asked for?"""

    def example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        answers = {kind: str(rng.choice(words)) for kind, words in THINGS.items()}
        words = [
            *answers.values(),
            *rng.choice(COMMON, size=5).tolist(),
            *rng.choice(DOMAINS[author.domain], size=3).tolist(),
        ]
        rng.shuffle(words)
        context = " ".join(words)
        kind = str(rng.choice(list(THINGS)))
        start = f" {context} ".index(f" {answers[kind]} ")
        return {"context": context, "question": f"which {kind}", "answers": [answers[kind]], "starts": [start]}

    return _corpus("toy-qa", "qa", example, train, test, authors)


def toy_seq2seq(train: int = 500, test: int = 100, authors: int = 20) -> Corpus:
    """Made up: a headline for a text, which names its domain and its topic."""

    def example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        topic = _topic(rng, author)
        return {"source": _prose(rng, topic, author.domain), "target": f"{author.domain} about the {topic}"}

    return _corpus("toy-seq2seq", "seq2seq", example, train, test, authors)


def toy_lm(train: int = 400, test: int = 100, authors: int = 20) -> Corpus:
    """Made up: sentences of a small grammar, which each author fills with words of their topics."""

    def example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        topic = _topic(rng, author)
        thing, other = rng.choice(TOPICS[topic], size=2)
        text = f"the {topic} of today is the {thing} and the {other} in the {author.domain}"
        return {"text": text}

    return _corpus("toy-lm", "lm", example, train, test, authors)


def _corpus(
    name: str,
    task: str,
    example: Callable[[np.random.Generator, Author], dict[str, object]],
    train: int,
    test: int,
    authors: int,
) -> Corpus:
    rng = Seed(0, (name,)).numpy()
    habits = rng.dirichlet(np.full(len(TOPICS), 0.7), size=authors)  # an author writes mostly about a few topics
    people = [Author(f"author-{i:02d}", list(DOMAINS)[i % len(DOMAINS)], habit) for i, habit in enumerate(habits)]
    columns: dict[str, list[object]] = {}
    for _ in range(train + test):
        author = people[int(rng.integers(authors))]
        made = {**example(rng, author), "domain": author.domain, "client": author.name}
        for key, value in made.items():
            columns.setdefault(key, []).append(value)
    assert set(TASK_COLUMNS[task]) <= set(columns)
    return Corpus(name, task, columns, train, "made by Motet")


def _topic(rng: np.random.Generator, author: Author) -> str:
    return str(rng.choice(list(TOPICS), p=author.habit))


def _prose(rng: np.random.Generator, topic: str, domain: str) -> str:
    """Mostly common words, some of the domain, more of the topic, now and then one of another topic."""
    other = str(rng.choice(list(TOPICS)))
    sources = [COMMON, DOMAINS[domain], TOPICS[topic], TOPICS[other]]
    picks = rng.choice(len(sources), size=int(rng.integers(6, 20)), p=[0.4, 0.15, 0.42, 0.03])
    return " ".join(str(rng.choice(sources[i])) for i in picks)
