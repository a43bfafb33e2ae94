"""Metrics that are not means of per-example scores: F1, Matthews and Pearson correlation, BLEU, and others.

They follow from sufficient statistics. The row of an example holds its score, then its statistics. The mean statistics of a
sample of examples, and the number of examples, determine the metric on that sample, which a bootstrap test needs.

| task | statistics |
| --- | --- |
| classification, tagging, lm | for each class: correct, predicted, true; the class of the metric `f1` comes first |
| qa | exact match |
| seq2seq | ROUGE-1, ROUGE-2, METEOR, BLEU's matches and totals (4 each), both lengths, ROUGE-Lsum, ROUGE-L with β = 1.2 |
| regression | x, y, x·y, x², y² |
| instruct | closed, exact match, open, ROUGE-L |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

MAX_CLASSES = 64  # with more classes, the statistics of an example would be too large
# From the means of the statistics (last axis) and the number of examples to a metric.
StatisticsMetric = Callable[[np.ndarray, int], np.ndarray]


def with_statistics(scores: np.ndarray, *statistics: np.ndarray) -> np.ndarray:
    """Return one row per example: its score, then its statistics."""
    return np.concatenate(
        [np.asarray(part, np.float32).reshape(len(scores), -1) for part in (scores, *statistics)], axis=1
    )


def class_statistics(true: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """Return correct, predicted and true as one-hot rows, or empty rows if there are too many classes."""
    if num_classes > MAX_CLASSES:
        return np.zeros((len(true), 0), np.float32)
    one_hot = np.eye(num_classes, dtype=np.float32)
    return np.concatenate([one_hot[true] * one_hot[predicted], one_hot[predicted], one_hot[true]], axis=1)


def regression_statistics(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.stack([x, y, x * y, x**2, y**2], axis=1)


def metric_from_statistics(metric: str, width: int) -> StatisticsMetric | None:
    """Return the function from the means of `width` statistics to a metric, or None if they do not determine it."""
    if width and width % 3 == 0 and metric in _CLASS_METRICS:
        compute = _CLASS_METRICS[metric]
        return lambda means, _: compute(*np.moveaxis(means.reshape(*means.shape[:-1], 3, -1), -2, 0))
    return _METRICS_BY_WIDTH.get(width, {}).get(metric)


def class_metrics(metrics: Iterable[str], counts: np.ndarray) -> dict[str, float]:
    """Return metrics of a confusion matrix of counts, with true classes as rows. `f1` is that of the first class."""
    means = counts / max(int(counts.sum()), 1)
    statistics = np.diagonal(means), means.sum(0), means.sum(1)
    return {metric: float(_CLASS_METRICS[metric](*statistics)) for metric in metrics}


def _divide(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Divide; 0 if the denominator is not positive."""
    shape = np.broadcast(numerator, denominator).shape
    quotient: np.ndarray = np.divide(numerator, denominator, out=np.zeros(shape), where=denominator > 0)
    return quotient


def _f1(correct: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    return _divide(2 * correct, predicted + true)


def _f1_macro(correct: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Average over the classes that occur in the predictions or the labels."""
    return _divide(_f1(correct, predicted, true).sum(-1), ((predicted + true) > 0).sum(-1))


def _matthews(correct: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Gorodkin's multi-class generalization, with means instead of counts."""
    covariance = correct.sum(-1) - (predicted * true).sum(-1)
    variances = (1 - (predicted**2).sum(-1)) * (1 - (true**2).sum(-1))
    return _divide(covariance, np.sqrt(np.maximum(variances, 0.0)))


_CLASS_METRICS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "accuracy": lambda correct, predicted, true: _divide(correct.sum(-1), true.sum(-1)),
    # the mean recall of the labels that occur: the accuracy on a test set with equally many texts of each
    "balanced_accuracy": lambda correct, predicted, true: _divide(_divide(correct, true).sum(-1), (true > 0).sum(-1)),
    "f1": lambda correct, predicted, true: _f1(correct, predicted, true)[..., 0],
    "precision": lambda correct, predicted, true: _divide(correct, predicted)[..., 0],
    "recall": lambda correct, predicted, true: _divide(correct, true)[..., 0],
    "f1_micro": lambda correct, predicted, true: _f1(correct.sum(-1), predicted.sum(-1), true.sum(-1)),
    "f1_macro": _f1_macro,
    "f1_weighted": lambda correct, predicted, true: _divide(
        (_f1(correct, predicted, true) * true).sum(-1), true.sum(-1)
    ),
    "matthews": _matthews,
}


def _bleu(means: np.ndarray, count: int) -> np.ndarray:
    """Return corpus BLEU with sacrebleu's exponential smoothing: precisions of zero become 1/2, 1/4, … of a match."""
    matches, totals, lengths = np.split(np.rint(count * means[..., 3:13]), [4, 8], axis=-1)
    is_zero = matches == 0
    smoothed = np.where(is_zero, 0.5 ** np.cumsum(is_zero, axis=-1), matches)
    precisions = _divide(smoothed, totals)
    has_score = (precisions > 0).all(-1) & ~is_zero.all(-1)
    mean_precision = np.exp(np.log(np.where(has_score[..., None], precisions, 1.0)).mean(-1))
    length, reference_length = lengths[..., 0], lengths[..., 1]
    brevity = np.exp(np.minimum(0.0, 1 - _divide(reference_length, length)))
    bleu: np.ndarray = np.where(has_score, mean_precision * brevity, 0.0)
    return bleu


def _pearson(means: np.ndarray, _: int) -> np.ndarray:
    x, y, xy, xx, yy = np.moveaxis(means, -1, 0)
    return _divide(xy - x * y, np.sqrt(np.maximum((xx - x**2) * (yy - y**2), 0.0)))


def _ratio(numerator: int, denominator: int) -> StatisticsMetric:
    return lambda means, _: _divide(means[..., numerator], means[..., denominator])


def _column(index: int) -> StatisticsMetric:
    return lambda means, _: means[..., index]


_METRICS_BY_WIDTH: dict[int, dict[str, StatisticsMetric]] = {
    1: {"em": _column(0)},
    4: {"exact_match": _ratio(1, 0), "rougeL": _ratio(3, 2)},
    5: {"pearson": _pearson},
    15: {
        "rouge1": _column(0),
        "rouge2": _column(1),
        "meteor": _column(2),
        "bleu": _bleu,
        "rougeLsum": _column(13),
        "rougeL_b12": _column(14),
    },
}
