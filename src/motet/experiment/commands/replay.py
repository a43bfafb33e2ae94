"""One client's part of one round, run again and overheard. Rounds follow from the seed, so what is seen is what happened."""

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
from motet.core.work import Job
from motet.experiment.build.component_builders import build_components
from motet.experiment.build.executor_builder import resolve_device
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.build.run_plan import RunPlan, build_plan
from motet.experiment.commands.run_folder import load_config
from motet.experiment.loop.checkpoint import load_checkpoint
from motet.experiment.loop.client_sampling import sample_cohort
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.context import Context
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import FitResult
from motet.learning.solver import Solver
from motet.report.progress import SilentProgress


@dataclass(frozen=True)
class TrainingTrace:
    """One training, as it went."""

    client: str
    examples: int
    solver: Solver
    fitted: FitResult
    update: Params


@dataclass(frozen=True, eq=False)
class TracingContext:
    """A context that passes everything on, and writes down what its client trains."""

    context: Context
    heard: list[TrainingTrace]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.context, name)

    def fit(self, start: Params, solver: Solver, **more: Any) -> Generator[Job, Any, FitResult]:
        fitted = yield from self.context.fit(start, solver, **more)
        on = more.get("examples") or self.context.participant.split("train")
        self.heard.append(TrainingTrace(self.context.client, len(on), solver, fitted, fitted.params - start))
        return fitted


@dataclass(frozen=True, eq=False)
class TracingFederation:
    """A federation that passes everything on, and overhears its clients."""

    federation: Any
    heard: list[TrainingTrace] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.federation, name)

    def context(self, *args: Any) -> Any:
        return TracingContext(self.federation.context(*args), self.heard)


def replay_client(folder: Path, round: int, client: str) -> Iterator[str]:
    """Line by line what the client did in that round, beside the others of its cohort."""
    config = load_config(folder)
    if not 1 <= round <= config.rounds:
        raise ConfigError(f"--round is {round}; the run has rounds 1 to {config.rounds}.")
    plan = build_plan(config, build_federation(config), build_components(config))
    cohort = sample_cohort(config.cohort, plan.federation.clients, round - 1, plan.federation.seed)
    if client not in cohort:
        raise ConfigError(f"--client: '{client}' took no part in round {round}; {', '.join(cohort[:12])} did.")
    listening = TracingFederation(plan.federation)
    with tempfile.TemporaryDirectory(prefix="motet-replay-") as scratch:
        begun = _begun(replace(plan, federation=listening), folder, round, Path(scratch), resolve_device(config.device))
        yield f"{config.recipe}: {config.algorithm.type}, round {round}, {client}; played again from round {begun.done + 1} on."
        begun.play_rounds(until=round - 1)
        listening.heard.clear()
        begun.play_rounds(until=round)
    yield from _told(listening.heard, client)


def _begun(plan: RunPlan, folder: Path, round: int, scratch: Path, device: torch.device) -> FederatedRun:
    """From the checkpoint if it is of before that round, else from the beginning; the run's own folder is not touched."""
    plan = replace(
        plan,
        evaluation=replace(plan.evaluation, every=plan.rounds + 1),
        checkpoint=replace(plan.checkpoint, last=False),
    )
    found = load_checkpoint(folder / "checkpoint", plan.digest)
    if found is not None and found.rounds < round:
        shutil.copytree(folder / "checkpoint", scratch / "checkpoint")
        running = FederatedRun(plan, SerialExecutor(device), scratch, SilentProgress())
        running.resume()
        return running
    return FederatedRun(plan, SerialExecutor(device), None, SilentProgress())


def _told(heard: list[TrainingTrace], client: str) -> Iterator[str]:
    mine, others = [h for h in heard if h.client == client], [h for h in heard if h.client != client]
    if not mine:
        yield "It trained nothing in this round."
    for one in mine:
        losses, s = one.fitted.losses, one.solver
        how = f"{one.fitted.steps} steps of {s.optimizer}, rate {s.learning_rate:g}, batches of {s.batch}"
        yield f"training on {one.examples} examples: {how}"
        if len(losses):
            yield f"  loss {losses[0]:.4f} → {losses[-1]:.4f}, highest {losses.max():.4f} at step {int(losses.argmax()) + 1}"
            yield f"  {_spark(losses.numpy())}"
        yield f"  update: norm {one.update.norm():.4g}; most in {', '.join(_largest(one.update))}"
    if others:
        ends = np.median([float(h.fitted.losses[-1]) for h in others if len(h.fitted.losses)])
        norms = np.median([h.update.norm() for h in others])
        count = len({h.client for h in others})
        yield f"the {count} others: median last loss {ends:.4f}, median norm of the update {norms:.4g}"


def _largest(update: Params, most: int = 3) -> list[str]:
    norms = {name: float(t.norm()) for name, t in update.tensors().items()}
    return [f"{name} ({norms[name]:.3g})" for name in sorted(norms, key=lambda n: -norms[n])[:most]]


def _spark(values: np.ndarray, width: int = 60) -> str:
    """A line of eight heights."""
    pieces = np.array_split(values, min(width, len(values)))
    means = np.array([p.mean() for p in pieces])
    low, high = float(means.min()), float(means.max())
    heights = np.round(7 * (means - low) / (high - low or 1.0)).astype(int)
    return "".join("▁▂▃▄▅▆▇█"[h] for h in heights)
