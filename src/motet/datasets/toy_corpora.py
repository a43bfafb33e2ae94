"""Generated corpora for tests and tutorials: small, learnable and seeded, one for each task.

Each has three domains and twenty clients: authors who write mostly about a few topics. The words are part of the data:
changing one of them changes all results on these corpora.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.read_report import ReadReport

TOPICS = {
    topic: words.split()
    for topic, words in {
        "weather": "rain sun cloud storm wind snow fog heat frost breeze thunder drizzle",
        "sport": "goal match team coach player score league referee race medal stadium training",
        "food": "bread soup cheese apple pepper onion rice salad butter honey lemon garlic",
        "music": "song choir violin melody rhythm drum opera piano chord concert singer tune",
    }.items()
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
CATEGORIES = {
    "colour": ["red", "green", "blue", "yellow", "purple", "orange"],
    "animal": ["cat", "horse", "eagle", "salmon", "tiger", "rabbit"],
    "number": ["two", "three", "seven", "twelve", "forty", "ninety"],
}
POSITIVE = ["good", "great", "lovely", "fine", "splendid", "happy"]
NEGATIVE = ["bad", "awful", "dull", "poor", "dreadful", "sad"]


@dataclass(frozen=True)
class Author:
    name: str
    domain: str
    topic_weights: np.ndarray


ExampleFunction = Callable[[np.random.Generator, Author], dict[str, object]]


def toy_classification(train: int = 600, test: int = 200, authors: int = 20) -> Corpus:
    """Generated texts, four topics. Classification; client = author; domain = news, mail or forum."""

    def sample_example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        topic = _sample_topic(rng, author)
        return {"text": _sample_text(rng, topic, author.domain), "label": topic}

    return _generate("toy-classification", "classification", sample_example, train, test, authors)


def toy_pairs(train: int = 900, test: int = 200, authors: int = 20) -> Corpus:
    """Generated pairs: does the second text name the topic of the first? Pair classification; client = author."""

    def sample_example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        topic = _sample_topic(rng, author)
        is_true = bool(rng.random() < 0.5)
        claim = topic if is_true else str(rng.choice([t for t in TOPICS if t != topic]))
        words = rng.choice(TOPICS[topic], size=3).tolist() + rng.choice(DOMAINS[author.domain], size=2).tolist()
        label = "entailment" if is_true else "not_entailment"
        return {"text": " ".join(words), "second": f"it is about {claim}", "label": label}

    return _generate("toy-pairs", "classification", sample_example, train, test, authors)


def toy_regression(train: int = 600, test: int = 200, authors: int = 20) -> Corpus:
    """Generated texts, scored from -2 to 2 by their positive words. Regression; client = author."""

    def sample_example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        share = rng.random()
        rated = [str(rng.choice(POSITIVE if rng.random() < share else NEGATIVE)) for _ in range(6)]
        words = [*rated, *rng.choice(COMMON, size=4).tolist(), *rng.choice(DOMAINS[author.domain], size=2).tolist()]
        rng.shuffle(words)
        score = 4 * sum(w in POSITIVE for w in rated) / len(rated) - 2
        return {"text": " ".join(words), "score": score}

    return _generate("toy-regression", "regression", sample_example, train, test, authors)


def toy_tagging(train: int = 400, test: int = 150, authors: int = 20) -> Corpus:
    """Generated sentences with persons and places. Tagging; client = author."""

    def sample_example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        words: list[str] = []
        tags: list[str] = []
        for _ in range(int(rng.integers(3, 7))):
            entity_type = str(rng.choice(["O", "O", "PER", "LOC"]))
            phrases = {"O": [*COMMON, *DOMAINS[author.domain]], "PER": PEOPLE, "LOC": PLACES}[entity_type]
            phrase = str(rng.choice(phrases)).split()
            words += phrase
            tags += ["O"] if entity_type == "O" else [f"B-{entity_type}", *[f"I-{entity_type}"] * (len(phrase) - 1)]
            words.append(str(rng.choice(COMMON)))  # entities are never adjacent
            tags.append("O")
        return {"words": words, "tags": tags}

    return _generate("toy-tagging", "tagging", sample_example, train, test, authors)


def toy_qa(train: int = 700, test: int = 150, authors: int = 20) -> Corpus:
    """Generated texts that hide a color, an animal and a number. QA; client = author."""

    def sample_example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        answers = {category: str(rng.choice(words)) for category, words in CATEGORIES.items()}
        words = [
            *answers.values(),
            *rng.choice(COMMON, size=5).tolist(),
            *rng.choice(DOMAINS[author.domain], size=3).tolist(),
        ]
        rng.shuffle(words)
        context = " ".join(words)
        category = str(rng.choice(list(CATEGORIES)))
        answer = answers[category]
        start = f" {context} ".index(f" {answer} ")
        return {"context": context, "question": f"which {category}", "answers": [answer], "starts": [start]}

    return _generate("toy-qa", "qa", sample_example, train, test, authors)


def toy_seq2seq(train: int = 500, test: int = 100, authors: int = 20) -> Corpus:
    """Generated texts and headlines that name their domain and topic. Seq2seq; client = author."""

    def sample_example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        topic = _sample_topic(rng, author)
        return {"source": _sample_text(rng, topic, author.domain), "target": f"{author.domain} about the {topic}"}

    return _generate("toy-seq2seq", "seq2seq", sample_example, train, test, authors)


def toy_lm(train: int = 400, test: int = 100, authors: int = 20) -> Corpus:
    """Generated sentences with words of one topic. Language modeling; client = author."""

    def sample_example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        topic = _sample_topic(rng, author)
        first, second = rng.choice(TOPICS[topic], size=2)
        return {"text": f"the {topic} of today is the {first} and the {second} in the {author.domain}"}

    return _generate("toy-lm", "lm", sample_example, train, test, authors)


def toy_instruct(train: int = 600, test: int = 120, authors: int = 20) -> Corpus:
    """Generated questions about a topic, and texts that need a headline. Instruct; client = author."""

    def sample_example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        topic = _sample_topic(rng, author)
        words = " ".join(rng.choice(TOPICS[topic], size=3).tolist())
        if rng.random() < 0.7:
            choices = list(TOPICS)
            return {"prompt": f"name the topic of {words}", "completion": topic, "closed": True, "choices": choices}
        headline = f"{author.domain} about the {topic}"
        prompt = f"write a headline for {author.domain} {words}"
        return {"prompt": prompt, "completion": headline, "closed": False, "choices": []}

    return _generate("toy-instruct", "instruct", sample_example, train, test, authors)


def toy_preference(train: int = 400, test: int = 100, authors: int = 20) -> Corpus:
    """Generated requests with a friendly answer and an unfriendly one. Preference; client = author."""

    def sample_example(rng: np.random.Generator, author: Author) -> dict[str, object]:
        word = str(rng.choice(TOPICS[_sample_topic(rng, author)]))
        answers = {
            name: f"the {word} is {rng.choice(adjectives)}"
            for name, adjectives in (("chosen", POSITIVE), ("rejected", NEGATIVE))
        }
        return {"prompt": f"what do you think of the {word}", **answers}

    return _generate("toy-preference", "preference", sample_example, train, test, authors)


def _generate(name: str, task: str, sample_example: ExampleFunction, train: int, test: int, num_authors: int) -> Corpus:
    rng = Seed(0, (name,)).numpy()
    weights = rng.dirichlet(np.full(len(TOPICS), 0.7), size=num_authors)
    authors = [Author(f"author-{i:02d}", list(DOMAINS)[i % len(DOMAINS)], w) for i, w in enumerate(weights)]
    columns: dict[str, list[object]] = {}
    for _ in range(train + test):
        author = authors[int(rng.integers(num_authors))]
        example = {**sample_example(rng, author), "domain": author.domain, "client": author.name}
        for column, value in example.items():
            columns.setdefault(column, []).append(value)
    return Corpus(name, task, columns, train, ReadReport(origin="generated by Motet", num_rows=train + test))


def _sample_topic(rng: np.random.Generator, author: Author) -> str:
    return str(rng.choice(list(TOPICS), p=author.topic_weights))


def _sample_text(rng: np.random.Generator, topic: str, domain: str) -> str:
    """Mix common words with words of the domain, of the topic, and a few of a random other topic."""
    other = str(rng.choice(list(TOPICS)))
    vocabularies = [COMMON, DOMAINS[domain], TOPICS[topic], TOPICS[other]]
    choices = rng.choice(len(vocabularies), size=int(rng.integers(6, 20)), p=[0.4, 0.15, 0.42, 0.03])
    return " ".join(str(rng.choice(vocabularies[i])) for i in choices)
