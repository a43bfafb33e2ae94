"""One text, or a pair of texts, one number: how alike two sentences are."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.learning.data.features import Column, Examples, Features, Ragged
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import RegressionOutputs
from motet.learning.objectives.supervised import SquaredError
from motet.tasks.sufficient_statistics import regression_statistics, with_statistics
from motet.tasks.tokenization import pools_last_position, tokenize


@dataclass(frozen=True)
class Regression:
    labels: tuple[str, ...] = ("score",)
    name: str = "regression"
    primary_metric: str = "pearson"
    metric_names: tuple[str, ...] = ("pearson", "spearman", "loss")
    objective: SquaredError = SquaredError()
    readout: RegressionOutputs = RegressionOutputs()

    def features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        ids = tokenize(model.tokenizer, corpus.column("text"), max_tokens, corpus.columns.get("second"))
        columns: dict[str, Column] = {**ids, "labels": _scores(corpus)}
        return Features(corpus.fingerprint, columns, raw_columns=corpus.columns, pad_left=pools_last_position(model))

    def texts(self, corpus: Corpus) -> Sequence[str]:
        if "second" not in corpus.columns:
            return corpus.column("text")
        return [f"{a} {b}" for a, b in zip(corpus.column("text"), corpus.column("second"), strict=True)]

    def example_scores(self, readings: Predictions, examples: Examples) -> np.ndarray:
        """The squared error, as a score: less is worse. With tallies."""
        return with_statistics(-readings["loss"].numpy(), regression_statistics(*_both(readings, examples)))

    def metrics(self, readings: Predictions, examples: Examples) -> dict[str, float]:
        """Correlations of a constant are not defined; 0 stands for them."""
        from scipy.stats import pearsonr, spearmanr

        truth, said = _both(readings, examples)
        scores = {"pearson": 0.0, "spearman": 0.0, "loss": float(readings["loss"].double().mean())}
        if len(truth) > 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = {"pearson": pearsonr(truth, said)[0], "spearman": spearmanr(truth, said)[0]}
            scores |= {name: float(value) for name, value in found.items() if np.isfinite(value)}
        return scores


def _both(readings: Predictions, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """The true and the predicted numbers."""
    labels = examples.features.columns["labels"]
    if isinstance(labels, Ragged):
        raise TypeError("regression has one number a text")
    return labels[examples.rows].astype(np.float64), readings["predictions"].double().numpy()


def _scores(corpus: Corpus) -> np.ndarray:
    values = []
    for row, value in enumerate(corpus.column("score")):
        try:
            values.append(float(value))
        except (TypeError, ValueError):
            raise DataError(f"{corpus.name}, row {row}: score '{value}' is no number; every row needs one.") from None
    found = np.array(values, np.float32)
    if not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found))[0])
        raise DataError(
            f"{corpus.name}, row {row}: score {values[row]} is not finite; every row needs a finite number."
        )
    return found


def regression(corpus: Corpus) -> Regression:
    """One text, or a pair of texts (column second), one number: Pearson's and Spearman's correlation."""
    corpus.column("score")
    return Regression()
