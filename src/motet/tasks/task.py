"""What a formulation is, beyond what training needs of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from motet.datasets.corpus import Corpus
from motet.learning.data.features import Examples, Features
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import Readout
from motet.learning.objectives.supervised import Objective


class Task(Protocol):
    """`headline` is the metric by which runs are compared, `measures` names all; `labels` is what the head tells apart."""

    @property
    def name(self) -> str: ...
    @property
    def primary_metric(self) -> str: ...
    @property
    def metric_names(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def objective(self) -> Objective: ...
    @property
    def readout(self) -> Readout: ...
    def features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features: ...
    def texts(self, corpus: Corpus) -> Sequence[str]:
        """What a vocabulary is made from, and texts are told alike by: one string an example."""

    def metrics(self, readings: Predictions, examples: Examples) -> dict[str, float]: ...
    def example_scores(self, readings: Predictions, examples: Examples) -> np.ndarray:
        """One score an example, the more the better, by which two models are compared item by item; or a row that begins
        with it and goes on with tallies, for metrics that are no means of scores (tasks/sufficient_statistics.py)."""
