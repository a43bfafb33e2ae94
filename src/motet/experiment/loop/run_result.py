"""The result of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rebased import ModelParams
from motet.core.script import ClientId
from motet.experiment.loop.metrics_log import INITIAL_SPLIT, MetricsLog
from motet.experiment.loop.result_frames import make_frame
from motet.experiment.loop.scores import BestDevRound, mean_metrics
from motet.learning.confusion_matrix import Confusion
from motet.report.result_plots import Engine, plot_bars, plot_confusion, plot_curves
from motet.transport.client_state import ClientStates
from motet.transport.mailbox import ClientFailure
from motet.transport.traffic import Traffic


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RunResult:
    """How a run ended.

    `final` are metrics of the model that is kept on the global test set, and `best` those after the best round there.
    `initial` are those of the model before training, if it was evaluated. Personal models are judged by `local_test`.
    """

    primary_metric: str
    rounds: int
    kept_round: int  # after which `params` and `final` were: the last or, with `evaluation.keep=best`, the best on dev
    state: Any  # of the algorithm
    params: ModelParams  # the model for a client without local state
    model_for: Callable[[ClientId], ModelParams]  # the model that a client would deploy
    has_personal_models: bool  # there is no global model
    client_states: ClientStates
    metrics: MetricsLog
    final: dict[str, float]
    best: dict[str, float]
    initial: dict[str, float]
    best_dev_round: BestDevRound | None  # None: there is no development set
    group_scores: dict[str, dict[str, float]]  # with personal models: means of each group
    client_scores: dict[ClientId, dict[str, float]]  # of each client's model on its test set
    client_spread: dict[str, float]  # of the primary metric over clients
    evaluated_clients: int
    example_scores: dict[ClientId, np.ndarray]  # "" is the global test set
    confusions: dict[str, Confusion]  # "" is the global model; else of the clients' models in each group
    epsilon: float | None  # privacy spent
    traffic: Traffic
    failures: list[ClientFailure]
    rejected_replies: Counter[ClientId]
    seconds: float
    examples_per_second: float

    def __repr__(self) -> str:
        scores = dict(self.final)
        if self.has_personal_models:  # they are deployed on each client's texts, so that number comes first
            local = {f"local_test_{name}": value for name, value in self.local_test.items()}
            scores = {**local, **{f"global_test_{name}": value for name, value in self.final.items()}}
        text = ", ".join(f"{name}={value:.4f}" for name, value in scores.items())
        return f"RunResult(rounds={self.rounds}, {text}, clients={self.evaluated_clients}, seconds={self.seconds:.1f})"

    def to_pandas(self) -> Any:
        """Return all metrics as a DataFrame with one row per value: round, who, split, name, value, seconds, bytes."""
        return make_frame(self.metrics.rows)

    def clients_to_pandas(self) -> Any:
        """Return the metrics of each client's model on its test set as a DataFrame with one row per client."""
        return make_frame([{"client": client, **scores} for client, scores in self.client_scores.items()])

    def labels_to_pandas(self) -> Any:
        """Return precision, recall, F1 and support of each label as a DataFrame with one row per label."""
        return make_frame(
            {**({"group": group} if group else {}), "label": label, **scores}
            for group, confusion in self.confusions.items()
            for label, scores in confusion.score_labels().items()
        )

    def confusion_to_pandas(self, group: str | None = None) -> Any:
        """Return the confusion matrix as a DataFrame: a row for each true label, a column for each predicted one."""
        confusion = self._find_confusion(group)
        frame = make_frame(dict(zip(confusion.labels, row, strict=True)) for row in confusion.counts.tolist())
        frame.index = list(confusion.labels)
        return frame.rename_axis(index="true", columns="predicted")

    def plot(self, *metrics: str, engine: Engine = "matplotlib") -> Any:
        """Draw metrics over the rounds; without any, the primary metric. Return a figure of matplotlib or plotly."""
        names = metrics or (self.primary_metric,)
        curves = {
            f"{name}{where}": self.metrics.curve(name, split, who) for name in names for where, split, who in _CURVES
        }
        for name in names:  # the model before training, if it was evaluated
            curves[name] = [*self.metrics.curve(name, INITIAL_SPLIT), *curves[name]]
        longest = max(map(len, curves.values()))
        curves = {name: curve for name, curve in curves.items() if len(curve) > 1 or longest == 1}
        if not longest:
            known = ", ".join(dict.fromkeys(row["name"] for row in self.metrics.rows if row["who"] == "server"))
            raise ConfigError(f"plot: there is no curve of {', '.join(names)}; the metrics are {known}.")
        return plot_curves(curves, ", ".join(names), engine)

    def plot_clients(self, metric: str | None = None, engine: Engine = "matplotlib") -> Any:
        """Draw a metric of each client's model on its own test set; None: the primary metric."""
        name = metric or self.primary_metric
        values = {client: scores[name] for client, scores in self.client_scores.items() if name in scores}
        if not values:
            raise ConfigError(f"plot_clients: no client has the metric '{name}'.")
        return plot_bars(values, name, engine)

    def plot_confusion(self, group: str | None = None, engine: Engine = "matplotlib") -> Any:
        """Draw the confusion matrix of the labels. With several groups of personal models, name one."""
        confusion = self._find_confusion(group)
        return plot_confusion(confusion.labels, confusion.counts, engine)

    def _find_confusion(self, group: str | None) -> Confusion:
        if not self.confusions:
            raise ConfigError(
                "there is no confusion matrix: the task has no labels, or clients keep the predictions of their models."
            )
        if group is None and len(self.confusions) == 1:
            return next(iter(self.confusions.values()))
        if group not in self.confusions:
            raise ConfigError(f"group is {group!r}; expected one of {', '.join(self.confusions)}.")
        return self.confusions[group]

    @property
    def local_test(self) -> dict[str, float]:
        """The local test of LG-FedAvg: the unweighted mean over clients of `client_scores`."""
        return mean_metrics(self.client_scores.values())


# The curves of `plot`: on which split, and of whose model.
_CURVES = (
    ("", "global", "server"),
    (" on the development set", "dev", "server"),
    (", mean over clients", "test", "clients"),
)
