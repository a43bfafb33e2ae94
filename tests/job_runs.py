"""Run training jobs packed, one by one, and in a plain loop, and compare what they learn."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.work import Executor, Job
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit

CPU = torch.device("cpu")


def run_jobs(executor: Executor, jobs: Iterable[Job]) -> dict[int, Any]:
    """Submit all jobs, and return their results in the order in which they come."""
    open_jobs = 0
    for i, job in enumerate(jobs):
        executor.submit(i, job)
        open_jobs += 1
    results: dict[Any, Any] = {}
    while len(results) < open_jobs:
        results |= dict(executor.wait_completed())
    return results


def run_packed(jobs: Iterable[Job], width: int = 8) -> tuple[dict[int, Any], PackedExecutor]:
    executor = PackedExecutor(CPU, width=width, use_bf16=False)
    return run_jobs(executor, jobs), executor


def relative_difference(params: Tensor, expected: Tensor, start: Tensor) -> float:
    """Return the difference relative to the update."""
    return float((params - expected).norm() / ((expected - start).norm() + 1e-12))


def assert_trained_alone(results: Mapping[int, Any], jobs: Iterable[Fit], tolerance: float) -> None:
    """Compare results with those of the serial executor."""
    for i, job in enumerate(jobs):
        expected = SerialExecutor(CPU).run(job).params.flat
        assert (expected - job.start.flat).norm() > 0
        assert relative_difference(results[i].params.flat, expected, job.start.flat) < tolerance


def objective_loss(job: Fit, module: Any, batch: Any) -> Tensor:
    """Return the mean loss of a batch by the job's objective."""

    class PlainForward:
        def __init__(self) -> None:
            self.module = module

        def __call__(self, batch: Any) -> Any:
            return module(**{n: t for n, t in batch.items() if n not in ("labels", "starts", "ends")})

    losses, weights = job.objective.losses(PlainForward(), batch)
    return (losses * weights).sum() / weights.sum()


def model_loss(job: Fit, module: Any, batch: Any) -> Tensor:
    """Return the loss of a batch that a model of transformers computes itself."""
    loss: Tensor = module(**batch).loss
    return loss


def train_plainly(job: Fit, compute_loss: Callable[[Fit, Any, Any], Tensor] = objective_loss) -> Tensor:
    """Train one module in a plain loop: torch's optimizers and clipping, decay by groups, the proximal term in the loss."""
    module = copy.deepcopy(job.model.module).train()
    every = {n: p for n, p in module.named_parameters() if p.requires_grad}
    for name, value in job.start.tensors().items():
        every[name].data.copy_(value)
    start = {n: p.detach().clone() for n, p in every.items()}
    solver, trained = job.solver, dict(every)
    if job.train_only is not None:
        trained = {n: every[n] for n in job.model.layout.select_layers(job.train_only).names}
    groups = [
        {"params": [p for p in trained.values() if p.dim() > 1], "weight_decay": solver.weight_decay},
        {"params": [p for p in trained.values() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer_class: Any = torch.optim.SGD if solver.optimizer == "sgd" else torch.optim.AdamW
    optimizer = optimizer_class(groups, lr=solver.learning_rate)
    batches = solver.draw_batches(len(job.examples), Seed(job.seed).derive("order").numpy())
    for step, indices in enumerate(batches):
        loss = compute_loss(job, module, job.examples.batch(indices))
        loss = loss + solver.proximal_mu / 2 * sum((p - start[n]).pow(2).sum() for n, p in trained.items())
        optimizer.zero_grad()
        loss.backward()
        for n, p in trained.items() if job.gradient_correction is not None else ():
            p.grad = job.gradient_correction[n] + (0 if p.grad is None else p.grad)
        if solver.clip:
            nn.utils.clip_grad_norm_(trained.values(), solver.clip)
        for group in optimizer.param_groups:
            group["lr"] = solver.learning_rate_at(step, len(batches))
        optimizer.step()
    return Params.from_tensors(every).flat
