"""The training loop: some clients' local trainings, side by side; one client is the case of a single row."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor

from motet.core.errors import RunError
from motet.core.rng import Seed, seeded_torch
from motet.core.work import JobFailure
from motet.learning.jobs import Fit, FitResult
from motet.learning.objectives.supervised import Batch
from motet.learning.packed.cuda_graphs import CudaGraphs
from motet.learning.packed.device_dataset import DeviceDataset
from motet.learning.packed.packed_model import PackedModel
from motet.learning.training.batch_order import batches_for_job
from motet.learning.training.optimizer import optimizer_for
from motet.learning.training.step_schedule import DeviceSchedule, HostSchedule, Read, StepSchedule

_RUNGS = 8  # finished clients are kept in a recorded step, at rate 0, until an eighth of the pack can leave


def fit(
    jobs: Sequence[Fit],
    pack: PackedModel,
    source: Read | DeviceDataset,
    tape: CudaGraphs | None = None,
    half: bool = False,
) -> list[FitResult | JobFailure]:
    """The jobs agree in model, objective and optimiser, and stand in the order of their steps, longest first."""
    orders = [batches_for_job(job) for job in jobs]
    pack.seat([job.start for job in jobs], _words(jobs))
    pack.train()
    keeps = any(job.keep_optimizer_state for job in jobs)  # at rate 0 moments would still fade, and steps be counted
    rung = 1 if tape is None or keeps else -(-len(jobs) // _RUNGS)
    slate: StepSchedule = (
        DeviceSchedule(jobs, orders, pack, source, rung)
        if isinstance(source, DeviceDataset)
        else HostSchedule(jobs, orders, pack, source)
    )
    training = Training(jobs, pack, slate, half)
    if tape is not None:
        tape.drop(lambda key: key[0][0] == id(pack) and key[1] != pack.generation)  # what has moved is not played again
    steps = len(orders[0])
    seed = Seed(jobs[0].seed) if len(jobs) == 1 else Seed(0, tuple(job.seed for job in jobs))
    with seeded_torch(seed.derive("dropout").to_int(), pack.device), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="grad and param do not obey"
        )  # rows of a matrix are far apart; it is meant
        training.prepare(bool(steps))
        for at in range(steps):
            training.step(at, tape)
    return training.end([sum(len(places) for places in order) for order in orders])


class Training:
    def __init__(self, jobs: Sequence[Fit], pack: PackedModel, slate: StepSchedule, half: bool) -> None:
        self.jobs, self.pack, self.slate, self.half = jobs, pack, slate, half
        self.objective = jobs[0].objective
        self.clips = (
            self._each("clips", [j.solver.clip or float("inf") for j in jobs])
            if any(j.solver.clip for j in jobs)
            else None
        )
        self.pulls = (
            self._each("pulls", [j.solver.proximal_mu for j in jobs])
            if any(j.solver.proximal_mu for j in jobs)
            else None
        )
        if self.pulls is not None:
            self.anchors = pack.taken([j.proximal_anchor or j.start for j in jobs], pack.vectors("anchor"))
        self.optimiser = optimizer_for(
            pack, jobs
        )  # the last that needs a place of the pack's own: what moves makes it anew
        decays = [j.solver.weight_decay for j in jobs]
        self.decays = self._each("decays", decays) if any(decays) else None
        self.acts: Tensor | None = None

    def _each(self, name: str, values: list[float]) -> Tensor:
        """One number a client, as a column that stays where it is."""
        kept: Tensor = self.pack.kept.setdefault(
            (name, len(values)), torch.zeros(len(values), 1, device=self.pack.device)
        )
        kept.copy_(torch.tensor(values).unsqueeze(1))
        return kept

    def prepare(self, some: bool) -> None:
        if self.decays is not None and some:
            self.acts = self._decayed()

    def step(self, at: int, tape: CudaGraphs | None) -> None:
        clients = self.slate.active(at)
        if clients != self.pack.crowd.clients:
            self.pack.narrow(clients)
        shapes = self.slate.turn(at)
        if tape is None:
            self._step()
        else:
            what = (self.objective, self.optimiser.number, self.clips is None, self.pulls is None, self.decays is None)
            kind = (id(self.pack), *what)
            key = (kind, self.pack.generation, self.pack.clients, self.pack.used, clients, shapes)
            tape.play(key, (id(self.pack), self.objective), self._step)

    def _step(self) -> None:
        k = self.pack.crowd.clients
        flat, grad = self.pack.flat[:k], self.pack.grad[:k]
        rates = self.slate.rates(k)
        self.pack.refresh()
        losses = self._losses(self.slate.batch(k), self.slate.counts(k), k)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        self.pack.collect()
        if self.pulls is not None:
            grad.addcmul_(flat - self.anchors[:k], self.pulls[:k])
        if self.clips is not None:
            grad.mul_((self.clips[:k] / (torch.linalg.vector_norm(grad, dim=1, keepdim=True) + 1e-6)).clamp(max=1))
        if self.decays is not None and self.acts is not None:
            shrink = -torch.as_tensor(rates, device=flat.device).unsqueeze(1) * self.decays[:k]
            flat.addcmul_(flat * self.acts, shrink)
        self.optimiser.step(rates, k)
        self.slate.note(losses.detach())

    def _losses(self, batch: Batch, counts: Tensor | None, clients: int) -> Tensor:
        """[clients]: each client's loss on its own rows."""
        with self._precision():
            losses, worth = self.objective.losses(self.pack, batch)
        losses, worth = losses.view(clients, -1), worth.view(clients, -1)
        worth = worth if counts is None else worth * counts
        return (losses * worth).sum(1) / worth.sum(1).clamp(min=1e-9)

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast(self.pack.device.type, torch.bfloat16) if self.half else nullcontext()

    def _decayed(self) -> Tensor:
        """1 where weight decay acts: on matrices that the objective reaches. What gets no gradient is not trained at all."""
        pack, mark = self.pack, ("acts", self.objective, self.pack.size)
        if mark not in pack.kept:
            mask = torch.zeros(1, pack.size, device=pack.device)
            self.slate.turn(0)
            pack.refresh()
            with seeded_torch(0, pack.device), self._precision():
                losses, _ = self.objective.losses(pack, self.slate.batch(pack.clients))
                losses.sum().backward()  # type: ignore[no-untyped-call]
            for name, acts in pack.windows(mask):
                if pack.leaves[name].grad is not None and acts.dim() > 2:
                    acts.fill_(1)
            pack.kept[mark] = mask
        kept: Tensor = pack.kept[mark]
        return kept

    def end(self, processed: Sequence[int]) -> list[FitResult | JobFailure]:
        losses = self.slate.losses()
        finite = torch.isfinite(self.pack.flat).all(dim=1).tolist()
        ends: list[FitResult | JobFailure] = []
        for i, job in enumerate(self.jobs):
            if finite[i] and bool(torch.isfinite(losses[i]).all()):
                optimizer_state = self.optimiser.optimizer_state(i, job) if job.keep_optimizer_state else None
                ends.append(FitResult(self.pack.given(i, job.start), losses[i], processed[i], optimizer_state))
            else:
                ends.append(JobFailure(_diverged(job, losses[i])))
        return ends


def _words(jobs: Sequence[Fit]) -> list[np.ndarray] | None:
    """The words of the examples, where training moves the embeddings of no others; None where it may."""
    for job in jobs:
        spread = (
            job.solver.weight_decay or job.optimizer_state or job.keep_optimizer_state or job.needs_full_model
        )  # such a job reads other words too
        if spread or (job.solver.proximal_mu and job.proximal_anchor is not None) or not len(job.examples):
            return None
    return [job.examples.unique_token_ids() for job in jobs]


def _diverged(job: Fit, losses: Tensor) -> RunError:
    wrong = (~torch.isfinite(losses)).nonzero()
    step = int(wrong[0]) if len(wrong) else len(losses) - 1
    value = "an update that is not finite" if not len(wrong) else f"a loss of {float(losses[step]):g}"
    clip = f"clip {job.solver.clip:g}" if job.solver.clip else "no clipping"
    return RunError(
        f"training gave {value} at step {step + 1} of {len(losses)} ({job.solver.optimizer}, lr {job.solver.learning_rate:g}, "
        f"{clip}), where finite numbers were expected; lower solver.lr or set solver.clip=1.0."
    )
