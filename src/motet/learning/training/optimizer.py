"""One of torch's optimisers for all clients of a pack: a vector each, and a rate each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from motet.learning.jobs import Fit, OptimizerState
from motet.learning.packed.packed_model import PackedModel

_NUMBERS = count(1)  # no two optimisers have one, so that a recorded step never moves the tensors of one that is gone
_MOMENTS = {"sgd": ("momentum_buffer",), "adamw": ("exp_avg", "exp_avg_sq")}


def optimizer_for(pack: PackedModel, jobs: Sequence[Fit]) -> PackedOptimizer:
    """The pack's own of this kind, with the moments that the jobs bring, or none."""
    solver = jobs[0].solver
    for name in ("flat", "grad", *_MOMENTS[solver.optimizer]):
        pack.vectors(name)  # so that all of them have their places before the optimiser is given windows on them
    pack.grad[:, pack.used :].zero_()
    for old in [m for m, o in pack.kept.items() if isinstance(o, PackedOptimizer) and o.generation != pack.generation]:
        del pack.kept[old]  # it holds on to vectors that have moved
    mark = ("optimiser", solver.optimizer, solver.momentum, pack.clients, pack.size)
    found: PackedOptimizer | None = pack.kept.get(mark)
    if found is None:
        pack.kept[mark] = found = PackedOptimizer(pack, solver.optimizer, solver.momentum)
    found.begin(jobs)
    return found


class PackedOptimizer:
    """Any element-wise optimiser will do, since each client's parameters are one vector.

    Weight decay is not its business: it acts on matrices only, and one vector has one decay.
    """

    def __init__(self, pack: PackedModel, kind: str, momentum: float) -> None:
        self.pack, self.generation, self.number = pack, pack.generation, next(_NUMBERS)
        self.names = () if kind == "sgd" and not momentum else _MOMENTS[kind]
        self.moments = {name: pack.vectors(name) for name in self.names}
        self.vectors = [nn.Parameter(row) for row in pack.flat]
        for vector, gradient in zip(self.vectors, pack.grad, strict=True):
            vector.grad = gradient
        on_device = pack.device.type != "cpu"
        self.rates = torch.zeros(len(self.vectors), device=pack.device) if on_device else None
        groups: list[dict[str, Any]] = [{"params": [vector]} for vector in self.vectors]
        if kind == "adamw":
            self.torch: torch.optim.Optimizer = torch.optim.AdamW(
                groups, weight_decay=0.0, fused=True, capturable=on_device
            )
        else:
            self.torch = torch.optim.SGD(groups, momentum=momentum, fused=True)
        self.groups = self.torch.param_groups
        self.steps = torch.zeros(len(self.vectors), device=pack.device)
        for i, vector in enumerate(self.vectors):
            state = self.torch.state[vector]
            state.update({name: rows[i] for name, rows in self.moments.items()})
            if kind == "adamw":
                state["step"] = self.steps[i]
            if self.rates is not None:
                self.groups[i]["lr"] = self.rates[i]

    def begin(self, jobs: Sequence[Fit]) -> None:
        self.steps.copy_(torch.tensor([float(j.optimizer_state.steps) if j.optimizer_state else 0.0 for j in jobs]))
        for place, rows in enumerate(self.moments.values()):
            rows.zero_()
            for i, job in enumerate(jobs):
                if job.optimizer_state is not None and job.optimizer_state.moments:
                    self.pack.taken([job.optimizer_state.moments[place]], rows[i : i + 1])

    def step(self, rates: Sequence[float] | Tensor, clients: int) -> None:
        """Move the first clients. On a device every rate is a window on one tensor, so that a recorded step can change it."""
        if self.rates is not None:
            self.rates[:clients].copy_(torch.as_tensor(rates))
        else:
            for group, rate in zip(self.groups, rates, strict=False):
                group["lr"] = float(rate)
        self.torch.param_groups = self.groups[:clients]
        self.torch.step()

    def optimizer_state(self, i: int, job: Fit) -> OptimizerState:
        moments = tuple(self.pack.given(i, job.start, rows) for rows in self.moments.values())
        return OptimizerState(int(self.steps[i]) if moments else 0, moments)
