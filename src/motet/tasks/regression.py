"""Regression: one number for a text or a pair of texts, such as a similarity."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.learning.data.features import Examples, Features
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import RegressionOutputs
from motet.learning.objectives.supervised import SquaredError
from motet.tasks.metric_statistics import regression_statistics, with_statistics
from motet.tasks.task import Task
from motet.tasks.tokenization import build_text_features


@dataclass(frozen=True)
class Regression(Task):
    labels: tuple[str, ...] = ("score",)
    name: str = "regression"
    primary_metric: str = "pearson"
    metric_names: tuple[str, ...] = ("pearson", "spearman", "loss")
    objective: SquaredError = SquaredError()
    readout: RegressionOutputs = RegressionOutputs()

    def build_features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        return build_text_features(corpus, model, max_tokens, _read_scores(corpus))

    def compute_metrics(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        """Return correlations and loss. The correlation with a constant is undefined and reported as 0."""
        from scipy.stats import pearsonr, spearmanr

        true, predicted = _true_and_predicted(predictions, examples)
        scores = {"pearson": 0.0, "spearman": 0.0, "loss": float(predictions["loss"].double().mean())}
        if len(true) > 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                correlations = {"pearson": pearsonr(true, predicted)[0], "spearman": spearmanr(true, predicted)[0]}
            scores |= {name: float(value) for name, value in correlations.items() if np.isfinite(value)}
        return scores

    def score_examples(self, predictions: Predictions, examples: Examples) -> np.ndarray:
        """Return the negative squared error; then the statistics of Pearson's correlation."""
        statistics = regression_statistics(*_true_and_predicted(predictions, examples))
        return with_statistics(-predictions["loss"].numpy(), statistics)


def _true_and_predicted(predictions: Predictions, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    return examples.column("labels").astype(np.float64), predictions["predictions"].double().numpy()


def _read_scores(corpus: Corpus) -> np.ndarray:
    values = []
    for row, value in enumerate(corpus.column("score")):
        try:
            values.append(float(value))
        except (TypeError, ValueError):
            raise DataError(
                f"{corpus.name}, row {row}: score '{value}' is not a number; every row needs one."
            ) from None
    scores = np.array(values, np.float32)
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise DataError(
            f"{corpus.name}, row {row}: score {values[row]} is not finite; every row needs a finite number."
        )
    return scores


def regression(corpus: Corpus) -> Regression:
    """One number for a text or a pair of texts (column second). Metrics: Pearson and Spearman correlation."""
    corpus.column("score")
    return Regression()
