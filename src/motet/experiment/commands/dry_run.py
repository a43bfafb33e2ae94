"""`motet check`: build everything, train a few steps, and estimate the memory, traffic and time of a run."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from motet.core.errors import RunError
from motet.core.layers import describe_roles
from motet.core.rng import Seed
from motet.core.threads import single_thread
from motet.experiment.build.component_builders import build_solver
from motet.experiment.build.executor_builder import (
    bfloat16_warning,
    describe_precision,
    resolve_device,
    uses_bfloat16,
)
from motet.experiment.build.federation import ClientGroup, Federation
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.build.traffic_estimate import estimate_traffic
from motet.experiment.commands.data_inspection import collect_inspections, count_truncated, describe_findings
from motet.experiment.commands.partition_commands import partition_facts
from motet.experiment.commands.recipe_runner import prepare_plan
from motet.experiment.loop.peak_memory import PeakMemory
from motet.experiment.recipe.run_config import GroupConfig, RunConfig
from motet.learning.executors.process_executor import default_worker_count
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.learning.jobs import Fit, FitResult
from motet.learning.reference_columns import add_reference
from motet.learning.solver import Solver
from motet.report.number_text import format_duration, format_range
from motet.tasks.classification import Classification

TIMED_STEPS = 3
MAX_LISTED_LABELS = 8
# A worker needs the weights, the gradient, two moments of Adam and the result, in float32.
WORKER_BYTES_PER_PARAMETER = 5 * 4


@dataclass(frozen=True)
class DryRunReport:
    """What a run will use and cost. Times and memory are estimates from a few real steps."""

    facts: dict[str, str]
    warnings: list[str]


class StepTiming(NamedTuple):
    first_loss: float
    seconds: float  # per step


def dry_run(config: RunConfig, federation: Federation) -> DryRunReport:
    """Check a configuration without running a round."""
    plan = prepare_plan(config, federation)
    solver = build_solver(config)
    timings, peak_memory = _time_groups(config, federation, solver)
    pairs = list(zip(federation.groups, config.client_groups, strict=True))
    seconds = _estimate_seconds(config, plan, federation, timings)
    device = resolve_device(config.device)
    facts = {
        **_describe_groups(config, federation),
        "precision": describe_precision(config.precision, device),
        "clients": _describe_clients(plan, federation),
        "first loss": ", ".join(f"{timing.first_loss:.3f}" for timing in timings),
        "bytes per round": _describe_traffic(plan),
        "memory": f"about {_estimate_memory(config, plan, federation, peak_memory) / 1e9:.1f} GB",
        "time": f"about {format_duration(seconds)} of training for {config.rounds} rounds",
    }
    slow = bfloat16_warning(config.precision, device)
    warnings = [f"{slow}."] if slow else []
    if (config.cohort.size or 0) > plan.cohort_size:
        warnings.append(
            f"cohort.size is {config.cohort.size}, but there are {plan.cohort_size} clients; all take part in a round."
        )
    warnings += describe_findings(collect_inspections(config, federation))
    warnings += [warning for group, group_config in pairs for warning in _collect_warnings(group, group_config)]
    return DryRunReport(facts=facts, warnings=warnings)


def _time_groups(config: RunConfig, federation: Federation, solver: Solver) -> tuple[list[StepTiming], int]:
    """Train a few steps in each group, and return their timings and the peak memory in bytes."""
    device, cache = resolve_device(config.device), PrefixCache()
    with closing(cache):
        for model, features in federation.models_with_features if device.type == "cpu" else ():
            cache.prepare(model, features)
        use_bf16 = uses_bfloat16(config.precision, device)
        with PeakMemory(interval=0.05, max_share=0.5) as memory, single_thread():
            timings = [
                time_steps(group, SerialExecutor(device, cache, use_bf16), solver) for group in federation.groups
            ]
            return timings, memory.measure()


def time_steps(group: ClientGroup, executor: SerialExecutor, solver: Solver) -> StepTiming:
    """Train a few steps on the largest client's data."""
    client = group.participant(group.clients.start + int(np.argmax(group.sizes)))
    solver = replace(solver, steps=TIMED_STEPS, proximal_mu=0.0)
    reference = add_reference(client.model, client.split("train"), client.task.reference_readout)
    examples = executor.run_work(reference)
    job = Fit(
        model=client.model,
        start=client.model.initial_params,
        examples=examples,
        objective=client.task.objective,
        solver=solver,
        seed=Seed(0).to_int(),
    )
    executor.run(replace(job, solver=replace(solver, steps=1)))  # warm-up: allocates memory and fills the cache
    start = time.perf_counter()
    result: FitResult = executor.run(job)
    if not result.losses.isfinite().all():
        raise RunError(
            f"the first losses are {result.losses.tolist()}; expected finite numbers. Check the data and the model."
        )
    return StepTiming(first_loss=float(result.losses[0]), seconds=(time.perf_counter() - start) / TIMED_STEPS)


def _parallel_clients(config: RunConfig, plan: RunPlan) -> int:
    on_cpu = resolve_device(config.device).type == "cpu"
    return min(plan.cohort_size, default_worker_count()) if on_cpu else 1


def _estimate_memory(config: RunConfig, plan: RunPlan, federation: Federation, peak: int) -> int:
    largest = max(model.layout.size for model, _ in federation.models_with_features)
    return peak + (_parallel_clients(config, plan) - 1) * WORKER_BYTES_PER_PARAMETER * largest


def _estimate_seconds(config: RunConfig, plan: RunPlan, federation: Federation, timings: list[StepTiming]) -> float:
    solver = build_solver(config)
    all_clients = sum(
        timing.seconds * solver.num_steps(int(size))
        for timing, group in zip(timings, federation.groups, strict=True)
        for size in group.sizes
    )
    share = plan.cohort_size / len(plan.federation.clients)
    return config.rounds * all_clients * share / _parallel_clients(config, plan)


def _describe_clients(plan: RunPlan, federation: Federation) -> str:
    sizes = np.concatenate([group.sizes for group in federation.groups])
    return f"{len(sizes):,}, {plan.cohort_size} per round, with {format_range(sizes)} examples each"


def _describe_traffic(plan: RunPlan) -> str:
    first, last = estimate_traffic(plan, 0), estimate_traffic(plan, plan.rounds - 1)
    text = f"{_format_bytes(first.down)} down, {_format_bytes(first.up)} up"
    if last != first:
        text += f" in the first round; {_format_bytes(last.down)} down, {_format_bytes(last.up)} up in the last"
    return text + (", and the messages of the secure sum" if plan.components.secure else "")


def _format_bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def _describe_groups(config: RunConfig, federation: Federation) -> dict[str, str]:
    """Describe task, data and model of the federation or, if it has several groups, of each."""
    pairs = list(zip(federation.groups, config.client_groups, strict=True))
    if len(pairs) == 1:
        return _describe_group(*pairs[0])
    facts = {
        f"{group.name}: {name}": fact
        for group, group_config in pairs
        for name, fact in _describe_group(group, group_config).items()
    }
    shared = federation.initial_models().shared.layout
    facts["server: model"] = _describe_model(federation.server, config.model.name)
    facts["in common"] = f"{shared.size:,} parameters of all models: {describe_roles(shared.roles)}"
    return facts


def _describe_group(group: ClientGroup, group_config: GroupConfig) -> dict[str, str]:
    task, corpus, lengths = group.task, group.corpus, group.features.lengths
    labels = f", {len(task.labels)} labels: {', '.join(task.labels[:MAX_LISTED_LABELS])}" if task.labels else ""
    measures = partition_facts(group.partition, corpus)
    truncated = _describe_truncated(group, group_config)
    return {
        "task": f"{task.name}, primary metric {task.primary_metric}{labels}",
        "data": f"{corpus.name}: {corpus.num_train:,} training rows, {len(corpus) - corpus.num_train:,} test rows",
        "tokens": f"{lengths.mean():.0f} per text on average, {lengths.max()} at most{truncated}",
        "model": _describe_model(group, group_config.model.name),
        "partition": ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in measures.items()),
    }


def _describe_truncated(group: ClientGroup, group_config: GroupConfig) -> str:
    max_tokens = group_config.model.max_tokens
    truncated = count_truncated(group, max_tokens)
    return f"; {truncated:,} texts are truncated at model.max_tokens={max_tokens}" if truncated else ""


def _describe_model(group: ClientGroup, name: str) -> str:
    parameters = sum(p.numel() for p in group.model.module.parameters())
    return f"{name}: {group.model.layout.size:,} of {parameters:,} parameters are trained"


def _collect_warnings(group: ClientGroup, group_config: GroupConfig) -> list[str]:
    warnings = []
    empty = int((group.sizes == 0).sum())
    if empty:
        warnings.append(f"{empty} clients have no training examples; they will reply with weight 0.")
    max_tokens = group_config.model.max_tokens
    truncated = (count_truncated(group, max_tokens) or 0) / max(1, len(group.features))
    if truncated > 0.5:
        warnings.append(f"{truncated:.0%} of the texts are truncated at model.max_tokens={max_tokens}.")
    warnings += [f"{note}." for note in group.notes]
    if isinstance(group.task, Classification):
        counts = np.bincount(group.task.label_ids(group.corpus)[: group.corpus.num_train])
        if counts.max() > 10 * max(1, counts.min()):
            warnings.append(
                f"labels are imbalanced: the rarest has {counts.min()} training examples, "
                f"the most frequent {counts.max()}."
            )
    return warnings
