"""A corpus by name or by path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from motet.core.errors import ConfigError, meant
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus, joined, split
from motet.datasets.hub import from_hub
from motet.datasets.movie_reviews import movie_reviews
from motet.datasets.table import read_table
from motet.datasets.toy import toy_classification, toy_lm, toy_pairs, toy_qa, toy_regression, toy_seq2seq, toy_tagging

DATASETS: dict[str, Callable[[], Corpus]] = {
    "movie-reviews": movie_reviews,
    "toy-classification": toy_classification,
    "toy-pairs": toy_pairs,
    "toy-regression": toy_regression,
    "toy-tagging": toy_tagging,
    "toy-qa": toy_qa,
    "toy-seq2seq": toy_seq2seq,
    "toy-lm": toy_lm,
}


@dataclass(frozen=True)
class DataChoice:
    """Which corpus, what its columns are called, and how much of it."""

    name: str | None = None
    path: str | None = None
    test: str | None = None  # a second file with the test rows; without it a share of the first becomes the test set
    text: str | None = None
    label: str | None = None
    client: str | None = None
    test_share: float = 0.2
    limit: int | None = None
    test_limit: int | None = None


def load_corpus(choice: DataChoice, seed: Seed) -> Corpus:
    if (choice.name is None) == (choice.path is None):
        raise ConfigError("data: give either data.name (a corpus by name) or data.path (your own file).")
    for name in ("limit", "test_limit"):
        value = getattr(choice, name)
        if value is not None and value < 1:
            raise ConfigError(f"data.{name} is {value}; it must be at least 1, or left out for all rows.")
    corpus = _named(choice) if choice.name is not None else _from_files(choice)
    return corpus.sample(choice.limit, choice.test_limit, seed.of("data").numpy())


def _named(choice: DataChoice) -> Corpus:
    name = choice.name or ""
    if name in DATASETS:
        return DATASETS[name]()
    if meant(name, DATASETS) and "/" not in name:
        raise ConfigError(f"data.name: there is no corpus '{name}'; Motet has {', '.join(DATASETS)}.{meant(name, DATASETS)}")
    return from_hub(name, _names(choice), choice.test_share)


def _from_files(choice: DataChoice) -> Corpus:
    path = Path(choice.path or "")
    train = read_table(path, _names(choice))
    if choice.test is None:
        return split(path.name, "classification", train, choice.test_share, path.name)
    return joined(path.name, "classification", train, read_table(Path(choice.test), _names(choice)), path.name)


def _names(choice: DataChoice) -> dict[str, str | None]:
    return {"text": choice.text, "label": choice.label, "client": choice.client, "domain": None}
