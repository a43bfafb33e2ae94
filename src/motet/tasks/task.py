"""The interface of a task formulation."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from motet.datasets.corpus import Corpus
from motet.learning.data.features import Examples, Features
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import Readout
from motet.learning.objectives.supervised import Objective


class Task(Protocol):
    """A task formulation. Tasks are frozen dataclasses, because their fields are sent to remote clients."""

    @property
    def name(self) -> str: ...
    @property
    def primary_metric(self) -> str:
        """The metric by which runs are compared."""

    @property
    def metric_names(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> tuple[str, ...]:
        """The classes of the model's head; empty for generation and language modeling."""

    @property
    def objective(self) -> Objective: ...
    @property
    def readout(self) -> Readout: ...
    def build_features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        """Tokenize a corpus for a model."""

    def compute_metrics(self, predictions: Predictions, examples: Examples) -> dict[str, float]: ...
    def score_examples(self, predictions: Predictions, examples: Examples) -> np.ndarray:
        """Return one score per example, higher is better, to compare two models example by example.

        A row may continue with sufficient statistics, for metrics that are not means of scores; see
        `motet.tasks.sufficient_statistics`.
        """
