"""FedAvg written by hand for speed: worker processes with one thread each, plain PyTorch, nothing else.

The baseline for a framework's round. Every worker simulates its share of the cohort and adds up weighted updates in shared
memory; the parent adds the workers' sums.
"""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
import torch

from benchmarks.workload import Inputs, Workload
from motet.learning.solver import Solver


def train(module: Any, trained: list[Any], solver: Solver, batches: list[np.ndarray], inputs: Inputs) -> None:
    """Train one client: a plain loop with fused optimizers and, on a GPU, bfloat16 autocast."""
    if solver.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(trained, lr=solver.learning_rate, fused=True)
    else:
        optimizer = torch.optim.AdamW(trained, lr=solver.learning_rate, fused=True, weight_decay=0.0)
    for step, indices in enumerate(batches):
        with torch.autocast(inputs.ids.device.type, torch.bfloat16, enabled=inputs.ids.is_cuda):
            loss = module(**inputs.batch(indices)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, solver.clip)
        for group in optimizer.param_groups:
            group["lr"] = solver.learning_rate_at(step, len(batches))
        optimizer.step()


class Bare:
    def __init__(self, workload: Workload, solver: Solver, workers: int = 2, freeze: int = 0) -> None:
        self.workload, self.solver, self.workers = workload, solver, workers
        self.module = workload.module(freeze)
        self.trained = [p for p in self.module.parameters() if p.requires_grad]
        size = sum(p.numel() for p in self.trained)
        self.params = torch.cat([p.detach().reshape(-1) for p in self.trained]).share_memory_()
        self.sums = [torch.zeros(size).share_memory_() for _ in range(workers)]
        self.inputs = workload.inputs(torch.device("cpu"))
        context = multiprocessing.get_context("fork")
        self.pipes: list[Any] = []
        torch.set_num_threads(1)
        for worker in range(workers):
            pipe, worker_pipe = context.Pipe()
            context.Process(target=self._work, args=(worker, worker_pipe), daemon=True).start()
            self.pipes.append(pipe)

    def round(self, index: int, cohort: list[int]) -> None:
        for worker, pipe in enumerate(self.pipes):
            pipe.send((index, cohort[worker :: self.workers]))
        for pipe in self.pipes:
            pipe.recv()
        self.params.add_(sum(self.sums) / (len(cohort) * self.workload.examples))

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)

    def _work(self, worker: int, pipe: Any) -> None:
        torch.set_num_threads(1)
        while (command := pipe.recv()) is not None:
            index, clients = command
            total = self.sums[worker].zero_()
            for client in clients:
                self._train(index, client)
                params = torch.cat([p.detach().reshape(-1) for p in self.trained])
                total.add_(params - self.params, alpha=float(self.workload.examples))
            pipe.send(True)

    def _train(self, index: int, client: int) -> None:
        start = 0
        with torch.no_grad():
            for p in self.trained:
                p.copy_(self.params[start : start + p.numel()].view_as(p))
                start += p.numel()
        self.module.train()
        batches = self.workload.batches(self.solver, index, client)
        train(self.module, self.trained, self.solver, batches, self.inputs)
