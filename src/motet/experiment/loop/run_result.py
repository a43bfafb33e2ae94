"""The result of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rebased import ModelParams
from motet.core.script import ClientId
from motet.experiment.loop.metrics_log import MetricsLog, mean_metrics
from motet.experiment.loop.scores import BestDevRound
from motet.transport.client_state import ClientStates
from motet.transport.mailbox import ClientFailure, Traffic


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RunResult:
    """How a run ended.

    `final` are metrics of the model that is kept on the global test set, and `best` those after the best round there.
    `initial` are those of the untouched model, if it was evaluated.
    """

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
    epsilon: float | None  # privacy spent
    traffic: Traffic
    failures: list[ClientFailure]
    rejected_replies: Counter[ClientId]
    seconds: float
    examples_per_second: float

    def __repr__(self) -> str:
        scores = ", ".join(f"{name}={value:.4f}" for name, value in self.final.items())
        return (
            f"RunResult(rounds={self.rounds}, {scores}, clients={self.evaluated_clients}, seconds={self.seconds:.1f})"
        )

    def to_pandas(self) -> Any:
        """Return all metrics as a DataFrame with one row per value: round, who, split, name, value, seconds, bytes."""
        return _make_frame(self.metrics.rows)

    def clients_to_pandas(self) -> Any:
        """Return the metrics of each client's model on its test set as a DataFrame with one row per client."""
        return _make_frame([{"client": client, **scores} for client, scores in self.client_scores.items()])

    @property
    def local_test(self) -> dict[str, float]:
        """The local test of LG-FedAvg: the unweighted mean over clients of `client_scores`."""
        return mean_metrics(self.client_scores.values())


def _make_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    try:
        import pandas
    except ImportError:
        raise ConfigError("a DataFrame needs pandas, which is not installed. Run: pip install pandas") from None
    return pandas.DataFrame(list(rows))
