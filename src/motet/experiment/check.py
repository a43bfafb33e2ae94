"""A rehearsal before round 1: everything is looked at once, and what it will cost is said."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from motet.core.errors import RunError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.weighted import Weighted
from motet.experiment.build import build_channel, device_of
from motet.experiment.config import Config
from motet.experiment.federation import Federation
from motet.experiment.memory import PeakMemory
from motet.experiment.session import plan_of
from motet.learning.bench import Alone, Scratch, one_thread
from motet.learning.jobs import Fit, Fitted
from motet.learning.solver import Solver
from motet.learning.workers import default_count
from motet.tasks.classification import Classification
from motet.wire import measure


@dataclass(frozen=True)
class Rehearsal:
    """What a run will look like. Times and memory are estimates from a few real steps."""

    facts: dict[str, Any]
    warnings: list[str]


def rehearse(config: Config, federation: Federation) -> Rehearsal:
    plan = plan_of(config, federation)
    solver: Solver = plan.algorithm.solver  # type: ignore[attr-defined]
    sizes = federation.partition.train.sizes
    cohort = min(config.cohort.size or len(sizes), len(sizes))
    device = device_of(config.device)
    scratch = Scratch()
    try:
        if device.type == "cpu":
            scratch.prepare(federation.model, federation.features)
        with PeakMemory(every=0.05) as memory, one_thread():
            loss, seconds = few_steps(federation, Alone(device, scratch), solver)
            peak = memory.look()
    finally:
        scratch.close()
    steps = float(np.mean([solver.count(int(n)) for n in sizes]))
    at_once = min(cohort, default_count()) if device.type == "cpu" else 1
    view = plan.algorithm.view(plan.algorithm.init(federation.start()), federation.clients[0])
    down = measure(build_channel(config).down.encode(view)).payload
    up = measure(build_channel(config).up.encode(Weighted(view, 1.0))).payload if isinstance(view, Params) else down
    model, corpus, lengths = federation.model, federation.corpus, federation.features.lengths
    whole = sum(p.numel() for p in model.module.parameters())
    facts = {
        "task": _task(federation),
        "data": f"{corpus.name}: {corpus.train:,} to train, {len(corpus) - corpus.train:,} to test",
        "tokens": f"{lengths.mean():.0f} a text on average, {lengths.max()} at most",
        "model": f"{config.model.name}: {model.layout.size:,} of {whole:,} parameters trained",
        "clients": f"{len(sizes):,}, {cohort} a round, with {sizes.min()} to {sizes.max()} examples each",
        "first loss": f"{loss:.3f}",
        "bytes a round": f"{cohort * down / 1e6:.1f} MB down, {cohort * up / 1e6:.1f} MB up",
        "memory": f"about {(peak + (at_once - 1) * _one_pack(model.layout.size)) / 1e9:.1f} GB",
        "time": f"about {config.rounds * cohort * steps * seconds / at_once:.0f} s of training for {config.rounds} rounds",
    }
    return Rehearsal(facts, _warnings(federation, config))


def _task(federation: Federation) -> str:
    task = federation.task
    labels = f", {len(task.labels)} labels: {', '.join(task.labels[:8])}" if task.labels else ""
    return f"{task.name}, judged by {task.headline}{labels}"


def few_steps(federation: Federation, bench: Alone, solver: Solver, steps: int = 3) -> tuple[float, float]:
    """Forward and backward on the largest client's texts; the loss of the first batch, and seconds a step."""
    client = federation.clients[int(np.argmax(federation.partition.train.sizes))]
    site = federation.site(client)
    short = replace(solver, steps=steps, pull=0.0)
    job = Fit(site.model, site.model.fresh, site.split("train"), site.task.objective, short, Seed(0).number())
    bench.run(replace(job, solver=replace(short, steps=1)))  # the first pass allocates, and fills the prefix
    began = time.perf_counter()
    fitted: Fitted = bench.run(job)
    if not fitted.losses.isfinite().all():
        raise RunError(f"the first losses are {fitted.losses.tolist()}; expected finite numbers. Check the data and the model.")
    return float(fitted.losses[0]), (time.perf_counter() - began) / steps


def _one_pack(parameters: int) -> int:
    return 4 * parameters * 5  # weights, gradient, two moments, the answer


def _warnings(federation: Federation, config: Config) -> list[str]:
    found = []
    empty = int((federation.partition.train.sizes == 0).sum())
    if empty:
        found.append(f"{empty} clients have no training examples; they will answer with weight 0.")
    cut = float((federation.features.lengths >= config.model.max_tokens).mean())
    if cut > 0.5:
        found.append(f"{cut:.0%} of the texts are cut at model.max_tokens={config.model.max_tokens}.")
    if isinstance(federation.task, Classification):
        counts = np.bincount(federation.task.label_ids(federation.corpus)[: federation.corpus.train])
        if counts.max() > 10 * max(1, counts.min()):
            found.append(f"labels are uneven: the rarest has {counts.min()} training examples, the commonest {counts.max()}.")
    return found
