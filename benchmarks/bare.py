"""FedAvg as somebody would write it by hand for speed: worker processes, one thread each, plain PyTorch, nothing else.

The floor that a framework's round is measured against. Every worker plays its share of the cohort, adds up weighted updates in
shared memory, and the parent adds the workers' sums.
"""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
import torch

from benchmarks.workload import Workload
from motet.learning.solver import Solver

HALF = torch.bfloat16  # on a GPU


def train(
    module: Any, own: list[Any], solver: Solver, order: list[np.ndarray], ids: torch.Tensor, labels: torch.Tensor
) -> None:
    """The local training of one client: the plain loop that everybody writes, with what PyTorch has to make it fast."""
    if solver.optimizer == "sgd":
        optimiser: torch.optim.Optimizer = torch.optim.SGD(own, lr=solver.learning_rate, fused=True)
    else:
        optimiser = torch.optim.AdamW(own, lr=solver.learning_rate, fused=True, weight_decay=0.0)
    for step, places in enumerate(order):
        rows = torch.from_numpy(places).to(ids.device)
        texts = ids[rows]
        with torch.autocast(ids.device.type, HALF, enabled=ids.is_cuda):
            loss = module(input_ids=texts, attention_mask=torch.ones_like(texts), labels=labels[rows]).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(own, solver.clip)
        for group in optimiser.param_groups:
            group["lr"] = solver.learning_rate_at(step, len(order))
        optimiser.step()


class Bare:
    def __init__(self, workload: Workload, solver: Solver, workers: int = 2, freeze: int = 0) -> None:
        self.workload, self.solver, self.workers = workload, solver, workers
        module = workload.module(freeze)
        self.own = [p for p in module.parameters() if p.requires_grad]
        self.module = module
        size = sum(p.numel() for p in self.own)
        self.params = torch.cat([p.detach().reshape(-1) for p in self.own]).share_memory_()
        self.sums = [torch.zeros(size).share_memory_() for _ in range(workers)]
        self.ids, self.labels = (torch.from_numpy(a).long() for a in workload.texts())
        context = multiprocessing.get_context("fork")
        self.pipes: list[Any] = []
        torch.set_num_threads(1)
        for w in range(workers):
            here, there = context.Pipe()
            context.Process(target=self._work, args=(w, there), daemon=True).start()
            self.pipes.append(here)

    def round(self, index: int, cohort: list[int]) -> None:
        for w, pipe in enumerate(self.pipes):
            pipe.send((index, cohort[w :: self.workers]))
        for pipe in self.pipes:
            pipe.recv()
        total = sum(self.sums) / (len(cohort) * self.workload.examples)
        self.params.add_(total)

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)

    def _work(self, worker: int, pipe: Any) -> None:
        torch.set_num_threads(1)
        while (job := pipe.recv()) is not None:
            index, clients = job
            total = self.sums[worker].zero_()
            for client in clients:
                self._train(index, client)
                after = torch.cat([p.detach().reshape(-1) for p in self.own])
                total.add_(after - self.params, alpha=float(self.workload.examples))
            pipe.send(True)

    def _train(self, index: int, client: int) -> None:
        at = 0
        with torch.no_grad():
            for p in self.own:
                p.copy_(self.params[at : at + p.numel()].view_as(p))
                at += p.numel()
        self.module.train()
        train(self.module, self.own, self.solver, self.workload.rows(self.solver, index, client), self.ids, self.labels)
