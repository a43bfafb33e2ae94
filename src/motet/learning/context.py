"""All a client method may see besides its message and its memory: its data, its model, and a executor to hand jobs to."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from motet.core.errors import ConfigError, MotetError, RunError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.core.work import Job, Work
from motet.learning.data.features import Examples
from motet.learning.jobs import ExtraExamples, Fit, FitResult, Infer, LRHorizon, OptimizerState, Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import Readout
from motet.learning.objectives.supervised import Objective
from motet.learning.solver import Solver

INITIAL_MODEL = "beginning"  # the program under which a client remembers what an earlier phase left it


class TrainableTask(Protocol):
    """A formulation: what is learnt, what is read off the model, and how that is judged."""

    @property
    def name(self) -> str: ...
    @property
    def primary_metric(self) -> str:
        """The metric by which runs are compared."""

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of all metrics."""

    @property
    def objective(self) -> Objective: ...
    @property
    def readout(self) -> Readout: ...
    def metrics(self, readings: Predictions, examples: Examples) -> dict[str, float]: ...
    def example_scores(self, readings: Predictions, examples: Examples) -> np.ndarray:
        """Return one score per example, or one row per example that starts with its score."""


class EvaluationResult(NamedTuple):
    """A model on a test set: its metrics, and, if asked for, a row for every item: its score, then what is tallied in it."""

    scores: dict[str, float]
    example_scores: np.ndarray | None


def score_predictions(task: TrainableTask, readings: Predictions, examples: Examples, items: bool) -> EvaluationResult:
    """What a task makes of readings."""
    rows = task.example_scores(readings, examples) if items else None
    return EvaluationResult(
        task.metrics(readings, examples), rows[:, None] if rows is not None and rows.ndim == 1 else rows
    )


@dataclass(frozen=True)
class Participant:
    """One participant: its task, its model, its data by split (train, test; for the server also global, union).

    `size` is the number of its training examples, which may have become more rows (windows) or fewer (grouped texts).
    """

    task: TrainableTask
    model: Model
    splits: Mapping[str, Examples]
    size: int

    def split(self, name: str) -> Examples:
        if name not in self.splits:
            raise ConfigError(f"there is no data called '{name}' here; there is {', '.join(self.splits)}.")
        return self.splits[name]


@dataclass(frozen=True)
class Context:
    """`fit` and `infer` are generators: they yield a job to the executor that hosts this client, and return its answer."""

    client: ClientId
    round: int
    participant: Participant
    seed: Seed
    invoke: Callable[[str, Any], Work[Any]] | None = None  # run another offered method here, inside this one
    read_state: Callable[[str], Any] = lambda program: None  # what another program remembers here
    shuffle_seed: Seed | None = None  # of all clients that do the same in this round

    @property
    def model(self) -> Model:
        return self.participant.model

    @property
    def initial_params(self) -> Params:
        """The model this client begins with: the one everybody has, or what an earlier phase left it."""
        return self.model.initial_params.updated(self.read_state(INITIAL_MODEL))

    @property
    def size(self) -> int:
        return self.participant.size

    def fit(
        self,
        start: Params,
        solver: Solver,
        *,
        objective: Objective | None = None,
        examples: Examples | None = None,
        proximal_anchor: Params | None = None,
        lr_horizon: LRHorizon | None = None,
        optimizer_state: OptimizerState | None = None,
        keep_optimizer_state: bool = False,
        extra_examples: ExtraExamples | None = None,
        purpose: str = "fit",
    ) -> Generator[Job, Any, FitResult]:
        """Train. `purpose` tells two trainings of one client in one round apart, so that they draw different orders."""
        shuffle_seed = self.shuffle_seed.derive(purpose).to_int() if self.shuffle_seed and solver.bucket else None
        job = Fit(
            model=self.model,
            start=start,
            examples=self.participant.split("train") if examples is None else examples,
            objective=objective or self.participant.task.objective,
            solver=solver,
            seed=self.seed.derive(purpose).to_int(),
            proximal_anchor=proximal_anchor,
            lr_horizon=lr_horizon,
            optimizer_state=optimizer_state,
            keep_optimizer_state=keep_optimizer_state,
            extra_examples=extra_examples,
            shuffle_seed=shuffle_seed,
        )
        result: FitResult = yield from self._submit(job)
        return result

    def infer(
        self, params: Params, examples: Examples, readout: Readout | None = None
    ) -> Generator[Job, Any, Predictions]:
        """Return the model's predictions for each example."""
        job = Infer(self.model, params, examples, readout or self.participant.task.readout)
        predictions: Predictions = yield from self._submit(job)
        return predictions

    def evaluate(self, params: Params, split: str, per_example: bool = False) -> Generator[Job, Any, EvaluationResult]:
        """Compute the task's metrics on a split, and the score of every example if `per_example` is set."""
        examples, task = self.participant.split(split), self.participant.task
        readings = yield from self.infer(params, examples)
        return score_predictions(task, readings, examples, per_example)

    def _submit(self, job: Job) -> Generator[Job, Any, Any]:
        try:
            return (yield job)
        except MotetError as error:
            raise RunError(f"{self.client}, round {self.round}: {error}") from error
