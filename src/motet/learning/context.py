"""What a client method can use besides its message and client state: its data, its model and an executor."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from motet.core.errors import ConfigError, MotetError, RunError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.rebased import ModelParams, split_base
from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.core.work import Job, Work
from motet.learning.confusion_matrix import Confusion
from motet.learning.data.features import Examples
from motet.learning.jobs import ExtraExamples, Fit, FitResult, Infer, OptimizerState, Predictions
from motet.learning.kept_optimizers import KeptOptimizers
from motet.learning.lr_schedule import LRHorizon
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import Readout
from motet.learning.objectives.supervised import Objective
from motet.learning.reference_columns import add_reference
from motet.learning.solver import Solver

INITIAL_MODEL = "beginning"  # client state under this name is the model from an earlier phase


class TrainableTask(Protocol):
    """A task formulation: its training objective, its readout and its metrics."""

    @property
    def name(self) -> str: ...
    @property
    def primary_metric(self) -> str:
        """The metric by which runs are compared."""

    @property
    def metric_names(self) -> tuple[str, ...]: ...
    @property
    def partial_metrics(self) -> tuple[str, ...]:
        """Metrics that are undefined on a test set without examples of some kind."""

    @property
    def objective(self) -> Objective: ...
    @property
    def readout(self) -> Readout: ...
    @property
    def reference_readout(self) -> Readout | None:
        """What the model computes once for each example, before training."""

    def count_confusions(self, predictions: Predictions, examples: Examples) -> Confusion | None:
        """Return the confusion matrix; None if the task has no labels."""

    def compute_metrics(self, predictions: Predictions, examples: Examples) -> dict[str, float]: ...
    def score_examples(self, predictions: Predictions, examples: Examples) -> np.ndarray:
        """Return one score per example, or one row per example that starts with its score."""


class EvaluationResult(NamedTuple):
    """Metrics of a model on a split and, on request, one row per example: its score, then sufficient statistics.

    For tasks with labels, the confusion matrices come with these rows.
    """

    scores: dict[str, float]
    example_scores: np.ndarray | None = None
    confusion: Confusion | None = None


def score_predictions(
    task: TrainableTask, predictions: Predictions, examples: Examples, per_example: bool
) -> EvaluationResult:
    scores = task.compute_metrics(predictions, examples)
    if not per_example:
        return EvaluationResult(scores)
    rows = task.score_examples(predictions, examples)
    confusion = task.count_confusions(predictions, examples)
    return EvaluationResult(scores, rows[:, None] if rows.ndim == 1 else rows, confusion)


@dataclass(frozen=True)
class Participant:
    """A participant's task, model and data by split: train and test; for the server also global and union.

    `size` is the number of training examples. The number of rows may differ (windows, grouped texts).
    """

    task: TrainableTask
    model: Model
    splits: Mapping[str, Examples]
    size: int

    def split(self, name: str) -> Examples:
        if name not in self.splits:
            raise ConfigError(f"there is no split '{name}' here; expected one of {', '.join(self.splits)}.")
        return self.splits[name]


@dataclass(frozen=True)
class Context:
    """Everything a client method can use besides its message and client state.

    `fit`, `infer` and `evaluate` are generators: they yield a job to the client's executor and return its result.
    `invoke` runs another client method inside this one. `read_state` returns the client state of another program.
    `shuffle_seed` is shared by all clients that run the same method in this round.
    """

    client: ClientId
    round: int
    participant: Participant
    seed: Seed
    invoke: Callable[[str, Any], Work[Any]] | None = None
    read_state: Callable[[str], Any] = lambda program: None
    shuffle_seed: Seed | None = None
    kept_optimizers: KeptOptimizers | None = None
    on_fit: Callable[[Context, FitResult], None] | None = None
    on_job: Callable[[Context, Job], None] | None = None
    on_failed_fit: Callable[[str], None] | None = None

    def observe_fits(self, on_fit: Callable[[Context, FitResult], None]) -> Context:
        """Return a context that calls a function with the result of each training."""
        return replace(self, on_fit=on_fit)

    def observe_jobs(self, on_job: Callable[[Context, Job], None]) -> Context:
        """Return a context that calls a function with each job before it begins. It may raise an error."""
        return replace(self, on_job=on_job)

    def hide_failed_fits(self, on_failed_fit: Callable[[str], None]) -> Context:
        """Return a context in which a training that fails calls a function with the reason, and changes nothing.

        Whether it fails depends on the texts, so an error would tell the server about them.
        """
        return replace(self, on_failed_fit=on_failed_fit)

    def keep_optimizers(self, kept: KeptOptimizers) -> Context:
        """Return a context in which trainings with `solver.keep_state` continue with these optimizers."""
        return replace(self, kept_optimizers=kept)

    @property
    def model(self) -> Model:
        return self.participant.model

    @property
    def initial_params(self) -> Params:
        """The client's first model: the common initial model, updated with the model from an earlier phase."""
        return self.model.initial_params.updated(self.read_state(INITIAL_MODEL))

    @property
    def size(self) -> int:
        """The number of training examples."""
        return self.participant.size

    def fit(
        self,
        start: ModelParams,
        solver: Solver,
        *,
        objective: Objective | None = None,
        examples: Examples | None = None,
        proximal_anchor: Params | None = None,
        lr_horizon: LRHorizon | None = None,
        optimizer_state: OptimizerState | None = None,
        keep_optimizer_state: bool = False,
        extra_examples: ExtraExamples | None = None,
        gradient_correction: Params | None = None,
        train_only: Layers | str | Sequence[str] | None = None,
        purpose: str = "fit",  # a second training in one round needs another one, to draw other batches
    ) -> Generator[Job, Any, FitResult]:
        """Train on the training split, or on `examples`.

        `gradient_correction` is added to every gradient before clipping. `train_only` selects layers, e.g. `"head"`.
        """
        start, base_update = split_base(start)
        trained = _parse_trained_layers(train_only, start)
        job = Fit(
            model=self.model,
            start=start,
            examples=self.participant.split("train") if examples is None else examples,
            objective=objective or self.participant.task.objective,
            solver=solver,
            seed=self.seed.derive(purpose).to_int(),
            proximal_anchor=proximal_anchor and _complete(proximal_anchor, trained, start),
            lr_horizon=lr_horizon,
            optimizer_state=optimizer_state,
            keep_optimizer_state=keep_optimizer_state,
            extra_examples=extra_examples,
            shuffle_seed=self.shuffle_seed.derive(purpose).to_int() if self.shuffle_seed and solver.bucket else None,
            gradient_correction=gradient_correction and _complete(gradient_correction, trained, start.zeros_like()),
            train_only=trained,
            base_update=base_update,
        )
        return self._fit(job)

    def infer(
        self, model: ModelParams, examples: Examples, readout: Readout | None = None
    ) -> Generator[Job, Any, Predictions]:
        """Return the model's predictions for each example."""
        params, base_update = split_base(model)
        readout = readout or self.participant.task.readout
        job = Infer(self.model, params, examples, readout, base_update=base_update)
        predictions: Predictions = yield from self._submit(job)
        return predictions

    def _fit(self, job: Fit) -> Generator[Job, Any, FitResult]:
        if self.participant.task.reference_readout is not None:
            job = replace(job, examples=(yield from self._add_reference(job.examples)))
        if self.kept_optimizers is not None and job.solver.spans_run:
            job = self.kept_optimizers.place_in_schedule(job)
        kept = self.kept_optimizers if job.solver.keep_state and not job.keep_optimizer_state else None
        key = kept.next_key() if kept else ""
        result: FitResult = yield from self._submit(kept.continue_job(job, key) if kept else job)
        if kept:
            kept.save(key, result.optimizer_state)
        if self.on_fit is not None:
            self.on_fit(self, result)
        return result

    def _add_reference(self, examples: Examples) -> Generator[Job, Any, Examples]:
        return (yield from add_reference(self.model, examples, self.participant.task.reference_readout))

    def evaluate(
        self, params: ModelParams, split: str, per_example: bool = False
    ) -> Generator[Job, Any, EvaluationResult]:
        """Compute the task's metrics on a split, and the score of every example if `per_example` is set."""
        examples, task = self.participant.split(split), self.participant.task
        predictions = yield from self.infer(params, (yield from self._add_reference(examples)))
        return score_predictions(task, predictions, examples, per_example)

    def _submit(self, job: Job) -> Generator[Job, Any, Any]:
        try:
            if self.on_job is not None:
                self.on_job(self, job)
            return (yield job)
        except MotetError as error:
            if isinstance(error, RunError) and isinstance(job, Fit) and self.on_failed_fit is not None:
                self.on_failed_fit(str(error))
                return FitResult(job.start, job.start.flat.new_zeros(1), 0, job.optimizer_state)
            raise RunError(f"{self.client}, round {self.round + 1}: {error}") from error


def _parse_trained_layers(layers: Layers | str | Sequence[str] | None, start: Params) -> Layers | None:
    """Return the selection of layers to train, or None for all. Raise an error if it selects nothing."""
    if layers is None:
        return None
    if not isinstance(layers, Layers):
        layers = Layers.parse(*([layers] if isinstance(layers, str) else layers))
    layout = start.layout
    layers.check(layout.names, layout.roles, "train_only")
    trained = layout.select_layers(layers)
    if not trained.names:
        raise ConfigError(f"train_only: {layers} selects no layer of this model; select at least one.")
    return None if trained is layout else layers


def _complete(params: Params, trained: Layers | None, others: Params) -> Params:
    """Return the layers that are trained, and the layers of `others` that are not trained or missing."""
    return others.updated(params if trained is None else params.select_layers(trained))
