"""Star ratings: labels with an order, and a generated corpus of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motet.datasets.corpus import Corpus
from motet.learning.data.features import Examples
from motet.learning.jobs import Predictions
from motet.tasks.classification import Classification, classification

PRAISE, BLAME = ("good", "great", "fine", "lovely"), ("bad", "poor", "dull", "awful")


@dataclass(frozen=True)
class Stars(Classification):
    """Classification that is also scored by the distance between the predicted and the true label."""

    name: str = "stars"
    head: str = "classification"  # the model gets the head of this task
    primary_metric: str = "closeness"

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("closeness", *super().metric_names)

    def compute_metrics(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        closeness = float(self.score_examples(predictions, examples).mean())
        return {"closeness": closeness, **super().compute_metrics(predictions, examples)}

    def score_examples(self, predictions: Predictions, examples: Examples) -> np.ndarray:
        truth = np.asarray(examples.features.columns["labels"])[examples.rows]
        distance = np.abs(truth - predictions["logits"].argmax(-1).numpy())
        return (1 - distance / (len(self.labels) - 1)).astype(np.float32)


def stars(corpus: Corpus) -> Stars:
    """Labels with an order, such as star ratings. Metrics: closeness, and those of classification."""
    base = classification(corpus)
    return Stars(labels=base.labels, positive_label=base.positive_label)


def toy_stars() -> Corpus:
    """Generated reviews with one to four stars. Classification; the share of praise gives the stars."""
    rng, texts, labels = np.random.default_rng(0), [], []
    for _ in range(160):
        rating = int(rng.integers(4))
        words = [*rng.choice(PRAISE, rating), *rng.choice(BLAME, 3 - rating), *["film"] * int(rng.integers(1, 6))]
        texts.append(" ".join(rng.permutation(words)))
        labels.append(str(rating + 1))
    return Corpus("toy-stars", "classification", {"text": texts, "label": labels}, num_train=120)
