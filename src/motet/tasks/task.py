"""The interface of a task formulation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from motet.core.attributes import attribute, undeclared
from motet.datasets.corpus import Corpus
from motet.learning.confusion_matrix import Confusion
from motet.learning.data.features import Examples, Features
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import Readout
from motet.learning.objectives.supervised import Objective


class Task(Protocol):
    """A task formulation. Every task inherits from this class.

    Tasks are frozen dataclasses, because their fields are sent to remote clients.
    """

    @attribute
    def name(self) -> str:
        """The name of the task in recipes."""
        raise undeclared(self, "name", 'name: str = "mine"')

    @attribute
    def primary_metric(self) -> str:
        """The metric by which runs are compared."""
        raise undeclared(self, "primary_metric", 'primary_metric: str = "accuracy"')

    @attribute
    def metric_names(self) -> tuple[str, ...]:
        """All metrics of `compute_metrics`."""
        raise undeclared(self, "metric_names", 'metric_names: tuple[str, ...] = ("accuracy", "loss")')

    @attribute
    def metric_details(self) -> Mapping[str, str]:
        """How metrics are computed, by metric, if there are several ways: the tokenizer, the stemmer, the script."""
        return {}

    @attribute
    def partial_metrics(self) -> tuple[str, ...]:
        """Metrics that are undefined on a test set without examples of some kind."""
        return ()

    @attribute
    def has_samples(self) -> bool:
        """True if the model writes texts, of which `read_samples` returns some."""
        return False

    @attribute
    def labels(self) -> tuple[str, ...]:
        """The classes of the model's head; empty for generation and language modeling."""
        return ()

    @attribute
    def head(self) -> str:
        """The task of Motet that has the same model head, e.g. `classification` for logits per text."""
        return self.name

    @attribute
    def objective(self) -> Objective:
        """The loss that clients minimize."""
        raise undeclared(self, "objective", "objective: CrossEntropy = CrossEntropy()")

    @attribute
    def readout(self) -> Readout:
        """What evaluation keeps of a forward pass."""
        raise undeclared(self, "readout", "readout: Logits = Logits()")

    @attribute
    def reference_readout(self) -> Readout | None:
        """What the model computes for each example before training, as extra columns of a batch. None: nothing."""
        return None

    @abstractmethod
    def build_features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        """Tokenize a corpus for a model."""

    def check_features(self, features: Features, model: Model) -> None:
        """Raise an error if the model cannot be evaluated on the texts."""
        return

    def describe_features(self, features: Features, model: Model) -> list[str]:
        """Say what happened to the texts, such as how many are truncated."""
        return []

    def chat_template(self, model: Model) -> str | None:
        """Return the chat template in which prompts are written, if it is not that of the model's tokenizer."""
        return None

    def read_samples(self, predictions: Predictions, examples: Examples) -> list[dict[str, Any]]:
        """Return what the model wrote for each example: `prompt`, `reference` and `generated`."""
        return []

    def count_confusions(self, predictions: Predictions, examples: Examples) -> Confusion | None:
        """Return how often each label is predicted as which; None if the task has no labels."""
        return None

    @abstractmethod
    def compute_metrics(self, predictions: Predictions, examples: Examples) -> dict[str, float]: ...
    @abstractmethod
    def score_examples(self, predictions: Predictions, examples: Examples) -> np.ndarray:
        """Return one score per example, higher is better, to compare two models example by example.

        A row may continue with sufficient statistics, for metrics that are not means of scores; see
        `motet.tasks.metric_statistics`.
        """
