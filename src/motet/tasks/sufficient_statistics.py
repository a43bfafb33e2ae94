"""Metrics that are no means over examples: they follow from what is tallied in each of them, and added up.

An example's row holds its score, then its tallies. By them a metric can be computed anew for any choice of examples, as a test
of significance does:

| task | tallies |
| --- | --- |
| classification, tagging, language models | right, said and true, each for every class; the class that F1 asks about is first |
| answers | exactly right |
| writing | ROUGE-1, ROUGE-2, METEOR, BLEU's matches and n-grams of 1 to 4 words, words said and true |
| regression | x, y, x·y, x², y² |
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

MAX_CLASSES = 64  # more are not tallied: every example would keep three numbers for each
StatisticsMetric = Callable[[np.ndarray], np.ndarray]  # of the tallies' means, in the last axis


def with_statistics(scores: np.ndarray, *tallies: np.ndarray) -> np.ndarray:
    """The rows of examples: the score, then the tallies."""
    return np.concatenate(
        [np.asarray(part, np.float32).reshape(len(scores), -1) for part in (scores, *tallies)], axis=1
    )


def class_statistics(truth: np.ndarray, said: np.ndarray, classes: int) -> np.ndarray:
    """Right, said and true of every class, for examples that have one each; nothing if there are too many classes."""
    if classes > MAX_CLASSES:
        return np.zeros((len(truth), 0), np.float32)
    each = np.eye(classes, dtype=np.float32)
    return np.concatenate([each[truth] * each[said], each[said], each[truth]], axis=1)


def metric_from_statistics(metric: str, width: int) -> StatisticsMetric | None:
    """How a metric follows from the means of so many tallies, if it does."""
    if width and width % 3 == 0 and metric in _OF_CLASSES:
        return lambda means: _OF_CLASSES[metric](*np.moveaxis(means.reshape(*means.shape[:-1], 3, -1), -2, 0))
    return _OF_WIDTH.get(width, {}).get(metric)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Nothing of nothing is 0."""
    share: np.ndarray = np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)
    return share


def _f1(right: np.ndarray, said: np.ndarray, true: np.ndarray) -> np.ndarray:
    return _share(2 * right, said + true)


def _macro(right: np.ndarray, said: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Over the classes that occur, be it only in what was said."""
    return _share(_f1(right, said, true).sum(-1), ((said + true) > 0).sum(-1))


def _matthews(right: np.ndarray, said: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Gorodkin's for any number of classes, of shares instead of counts."""
    together = right.sum(-1) - (said * true).sum(-1)
    apart = (1 - (said**2).sum(-1)) * (1 - (true**2).sum(-1))
    return _share(together, np.sqrt(np.maximum(apart, 0.0)))


_OF_CLASSES: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "accuracy": lambda right, said, true: _share(right.sum(-1), true.sum(-1)),
    "f1": lambda right, said, true: _f1(right, said, true)[..., 0],
    "precision": lambda right, said, true: _share(right, said)[..., 0],
    "recall": lambda right, said, true: _share(right, true)[..., 0],
    "f1_macro": _macro,
    "f1_weighted": lambda right, said, true: _share((_f1(right, said, true) * true).sum(-1), true.sum(-1)),
    "matthews": _matthews,
}


def _bleu(means: np.ndarray) -> np.ndarray:
    matches, grams, said, true = means[..., 3:7], means[..., 7:11], means[..., 11], means[..., 12]
    precise = np.exp(np.log(np.maximum(_share(matches, grams), 1e-300)).mean(-1))
    bleu: np.ndarray = precise * np.exp(np.minimum(0.0, 1 - _share(true, np.maximum(said, 1e-300))))
    return bleu


def _pearson(means: np.ndarray) -> np.ndarray:
    x, y, xy, xx, yy = np.moveaxis(means, -1, 0)
    return _share(xy - x * y, np.sqrt(np.maximum((xx - x**2) * (yy - y**2), 0.0)))


def regression_statistics(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.stack([x, y, x * y, x**2, y**2], axis=1)


_OF_WIDTH: dict[int, dict[str, StatisticsMetric]] = {
    1: {"em": lambda means: means[..., 0]},
    5: {"pearson": _pearson},
    13: {
        "rouge1": lambda means: means[..., 0],
        "rouge2": lambda means: means[..., 1],
        "meteor": lambda means: means[..., 2],
        "bleu": _bleu,
    },
}
