"""`motet replay`: run one client's part of one round again, which the seed makes possible, and show its training."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.script import ClientId
from motet.core.work import Job
from motet.experiment.build.component_builders import build_components
from motet.experiment.build.executor_builder import resolve_device
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.build.run_plan import AnyFederation, RunPlan, build_plan
from motet.experiment.commands.run_folder import load_config
from motet.experiment.deploy.served_run import clients_bring_data
from motet.experiment.loop.checkpoint import load_checkpoint
from motet.experiment.loop.client_sampling import sample_cohort
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.start_folder import enter_start_folder
from motet.learning.context import Context
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import FitResult
from motet.learning.kept_optimizers import KeptOptimizers
from motet.learning.solver import Solver

SPARK_LINE = "▁▂▃▄▅▆▇█"
MAX_LISTED_CLIENTS = 12


@dataclass(frozen=True)
class TrainingTrace:
    """One local training: its settings, losses and update."""

    client: ClientId
    examples: int
    solver: Solver
    result: FitResult
    update: Params


@dataclass(frozen=True, eq=False)
class TracingContext:
    """A client's context that also records its trainings."""

    context: Context
    traces: list[TrainingTrace]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.context, name)

    def keep_optimizers(self, kept: KeptOptimizers) -> TracingContext:
        return replace(self, context=self.context.keep_optimizers(kept))

    def fit(self, start: Params, solver: Solver, **options: Any) -> Generator[Job, Any, FitResult]:
        result = yield from self.context.fit(start, solver, **options)
        examples = options.get("examples") or self.context.participant.split("train")
        trace = TrainingTrace(
            client=self.context.client,
            examples=len(examples),
            solver=solver,
            result=result,
            update=result.params - start,
        )
        self.traces.append(trace)
        return result


@dataclass(frozen=True, eq=False)
class TracingFederation:
    """A federation that also records the trainings of its clients."""

    federation: AnyFederation
    traces: list[TrainingTrace] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.federation, name)

    def context(self, *args: Any) -> Any:
        return TracingContext(self.federation.context(*args), self.traces)


def replay_client(folder: Path, round: int, client: ClientId) -> Iterator[str]:
    """Yield lines that describe what a client did in a round, and how it compares with the rest of the cohort."""
    config = load_config(folder)
    if not 1 <= round <= config.rounds:
        raise ConfigError(f"--round is {round}; expected 1 to {config.rounds}.")
    if clients_bring_data(config):
        raise ConfigError(
            f"the texts of {client} are not on this machine, so its training cannot be repeated here; expected a run "
            f"with simulated clients. For the scores of all clients: motet report {folder}"
        )
    with enter_start_folder(folder):
        federation = TracingFederation(build_federation(config))
        plan = build_plan(config, federation, build_components(config))
    if config.cohort.sampler == "oort":
        raise ConfigError(
            "the cohorts of cohort.sampler=oort follow from all earlier rounds, so a single round cannot be repeated; "
            "expected a run with cohort.sampler=seeded or round."
        )
    cohort = sample_cohort(config.cohort, federation.clients, round - 1, federation.seed)
    if client not in cohort:
        raise ConfigError(
            f"--client: '{client}' was not in round {round}; its cohort was {', '.join(cohort[:MAX_LISTED_CLIENTS])}."
        )
    with tempfile.TemporaryDirectory(prefix="motet-replay-") as scratch:
        run = _start_run(plan, folder, round, Path(scratch), resolve_device(config.device))
        first = run.rounds + 1
        yield f"{config.recipe}: {config.algorithm.type}, round {round}, {client}; replayed from round {first}."
        run.run_rounds(until=round - 1)
        federation.traces.clear()
        run.run_rounds(until=round)
    yield from _describe_traces(federation.traces, client)


def _start_run(plan: RunPlan, folder: Path, round: int, scratch: Path, device: torch.device) -> FederatedRun:
    """Start from the checkpoint if it is older than the round, else from the beginning. The folder is not changed."""
    plan = replace(
        plan,
        evaluation=replace(plan.evaluation, every=plan.rounds + 1),
        checkpoint=replace(plan.checkpoint, last=False),
    )
    checkpoint = load_checkpoint(folder / "checkpoint", plan.digest)
    if checkpoint is None or checkpoint.progress.rounds >= round:
        return FederatedRun(plan, SerialExecutor(device))
    shutil.copytree(folder / "checkpoint", scratch / "checkpoint")
    run = FederatedRun(plan, SerialExecutor(device), folder=scratch)
    run.resume()
    return run


def _describe_traces(traces: list[TrainingTrace], client: ClientId) -> Iterator[str]:
    own = [trace for trace in traces if trace.client == client]
    others = [trace for trace in traces if trace.client != client]
    if not own:
        yield "The client trained nothing in this round."
    for trace in own:
        yield from _describe_training(trace)
    if others:
        last_losses = [float(t.result.losses[-1]) for t in others if len(t.result.losses)]
        loss, norm = np.median(last_losses), np.median([t.update.norm() for t in others])
        count = len({t.client for t in others})
        yield f"the {count} others: median last loss {loss:.4f}, median norm of the update {norm:.4g}"


def _describe_training(trace: TrainingTrace) -> Iterator[str]:
    losses, solver = trace.result.losses, trace.solver
    yield (
        f"training on {trace.examples} examples: {trace.result.steps} steps of {solver.optimizer}, "
        f"learning rate {solver.learning_rate:g}, batch size {solver.batch}"
    )
    if len(losses):
        highest = int(losses.argmax())
        yield f"  loss {losses[0]:.4f} → {losses[-1]:.4f}, highest {losses[highest]:.4f} at step {highest + 1}"
        yield f"  {_draw_spark_line(losses.numpy())}"
    yield f"  update: norm {trace.update.norm():.4g}; largest in {', '.join(_list_largest(trace.update))}"


def _list_largest(update: Params, count: int = 3) -> list[str]:
    """Return the tensors with the largest norms."""
    norms = {name: float(tensor.norm()) for name, tensor in update.tensors().items()}
    return [f"{name} ({norms[name]:.3g})" for name in sorted(norms, key=lambda n: -norms[n])[:count]]


def _draw_spark_line(values: np.ndarray, width: int = 60) -> str:
    """Draw values as one line of block characters."""
    means = np.array([chunk.mean() for chunk in np.array_split(values, min(width, len(values)))])
    low, high = float(means.min()), float(means.max())
    heights = np.round((len(SPARK_LINE) - 1) * (means - low) / (high - low or 1.0)).astype(int)
    return "".join(SPARK_LINE[height] for height in heights)
