"""A rehearsal before round 1: everything is looked at once, and what it will cost is said."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from motet.core.errors import RunError
from motet.core.layers import describe_roles
from motet.core.rng import Seed
from motet.core.threads import single_thread
from motet.experiment.build.executor_builder import resolve_device
from motet.experiment.build.federation import ClientGroup, Federation
from motet.experiment.build.traffic_estimate import estimate_client_bytes
from motet.experiment.commands.partition_commands import partition_facts
from motet.experiment.commands.run_folder import prepare_plan
from motet.experiment.loop.peak_memory import PeakMemory
from motet.experiment.recipe.run_config import GroupConfig, RunConfig
from motet.learning.executors.process_executor import default_worker_count
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.learning.jobs import Fit, FitResult
from motet.learning.solver import Solver
from motet.tasks.classification import Classification


@dataclass(frozen=True)
class DryRunReport:
    """What a run will look like. Times and memory are estimates from a few real steps."""

    facts: dict[str, Any]
    warnings: list[str]


def dry_run(config: RunConfig, federation: Federation) -> DryRunReport:
    plan = prepare_plan(config, federation)
    solver: Solver = plan.algorithm.solver  # type: ignore[attr-defined]
    sizes = np.concatenate([group.sizes for group in federation.groups])
    cohort = min(config.cohort.size or len(sizes), len(sizes))
    device = resolve_device(config.device)
    scratch = PrefixCache()
    try:
        for model, features in federation.models_with_features if device.type == "cpu" else ():
            scratch.prepare(model, features)
        with PeakMemory(interval=0.05) as memory, single_thread():
            tried = [time_steps(group, SerialExecutor(device, scratch), solver) for group in federation.groups]
            peak = memory.measure()
    finally:
        scratch.close()
    at_once = min(cohort, default_worker_count()) if device.type == "cpu" else 1
    work = sum(
        s * solver.num_steps(int(n)) for (_, s), g in zip(tried, federation.groups, strict=True) for n in g.sizes
    )
    seconds = config.rounds * work * cohort / len(sizes) / at_once
    moved = estimate_client_bytes(plan)
    largest = max(model.layout.size for model, _ in federation.models_with_features)
    facts = {
        **_told(config, federation),
        "clients": f"{len(sizes):,}, {cohort} a round, with {sizes.min()} to {sizes.max()} examples each",
        "first loss": ", ".join(f"{loss:.3f}" for loss, _ in tried),
        "bytes a round": f"{_size(cohort * moved.down)} down, {_size(cohort * moved.up)} up"
        + (", and what the secure sum itself sends" if plan.components.secure else ""),
        "memory": f"about {(peak + (at_once - 1) * _one_pack(largest)) / 1e9:.1f} GB",
        "time": f"about {seconds:.0f} s of training for {config.rounds} rounds",
    }
    return DryRunReport(
        facts, [w for g, c in zip(federation.groups, config.client_groups, strict=True) for w in _warnings(g, c)]
    )


def _told(config: RunConfig, federation: Federation) -> dict[str, str]:
    """Task, data and model of the federation or, where it has several groups, of each."""
    groups = list(zip(federation.groups, config.client_groups, strict=True))
    if len(groups) == 1:
        return _facts(*groups[0])
    facts = {f"{group.name}: {n}": fact for group, choice in groups for n, fact in _facts(group, choice).items()}
    shared = federation.initial_models().shared.layout
    facts["server: model"] = _model(federation.server, config.model.name)
    facts["in common"] = f"{shared.size:,} parameters of all models: {describe_roles(shared.roles)}"
    return facts


def _facts(group: ClientGroup, choice: GroupConfig) -> dict[str, str]:
    task, corpus, lengths = group.task, group.corpus, group.features.lengths
    labels = f", {len(task.labels)} labels: {', '.join(task.labels[:8])}" if task.labels else ""
    return {
        "task": f"{task.name}, judged by {task.primary_metric}{labels}",
        "data": f"{corpus.name}: {corpus.num_train:,} to train, {len(corpus) - corpus.num_train:,} to test",
        "tokens": f"{lengths.mean():.0f} a text on average, {lengths.max()} at most",
        "model": _model(group, choice.model.name),
        "partition": _unevenness(group),
    }


def _model(group: ClientGroup, name: str) -> str:
    whole = sum(p.numel() for p in group.model.module.parameters())
    return f"{name}: {group.model.layout.size:,} of {whole:,} parameters trained"


def _unevenness(group: ClientGroup) -> str:
    said = partition_facts(group.partition, group.corpus)
    return ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in said.items())


def time_steps(group: ClientGroup, executor: SerialExecutor, solver: Solver, steps: int = 3) -> tuple[float, float]:
    """Forward and backward on the largest client's texts; the loss of the first batch, and seconds a step."""
    site = group.participant(group.clients.start + int(np.argmax(group.sizes)))
    short = replace(solver, steps=steps, proximal_mu=0.0)
    job = Fit(site.model, site.model.initial_params, site.split("train"), site.task.objective, short, Seed(0).to_int())
    executor.run(replace(job, solver=replace(short, steps=1)))  # the first pass allocates, and fills the prefix
    began = time.perf_counter()
    fitted: FitResult = executor.run(job)
    if not fitted.losses.isfinite().all():
        raise RunError(
            f"the first losses are {fitted.losses.tolist()}; expected finite numbers. Check the data and the model."
        )
    return float(fitted.losses[0]), (time.perf_counter() - began) / steps


def _size(count: int) -> str:
    """Opinions on a few texts are a thousandth of a model."""
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def _one_pack(parameters: int) -> int:
    return 4 * parameters * 5  # weights, gradient, two moments, the answer


def _warnings(group: ClientGroup, choice: GroupConfig) -> list[str]:
    found = []
    empty = int((group.sizes == 0).sum())
    if empty:
        found.append(f"{empty} clients have no training examples; they will answer with weight 0.")
    cut = float((group.features.lengths >= choice.model.max_tokens).mean())
    if cut > 0.5:
        found.append(f"{cut:.0%} of the texts are cut at model.max_tokens={choice.model.max_tokens}.")
    if isinstance(group.task, Classification):
        counts = np.bincount(group.task.label_ids(group.corpus)[: group.corpus.num_train])
        if counts.max() > 10 * max(1, counts.min()):
            found.append(
                f"labels are uneven: the rarest has {counts.min()} training examples, the commonest {counts.max()}."
            )
    return found
