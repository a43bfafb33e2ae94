"""The training loop. It trains several clients in one packed model; a single client is the case of one row.

One step: forward, loss per client, backward, proximal term (FedProx), gradient correction (SCAFFOLD), clipping, weight
decay, optimizer.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor

from motet.core.errors import RunError
from motet.core.params import Params, is_finite
from motet.core.rng import Seed, seeded_torch
from motet.core.work import JobFailure
from motet.learning.jobs import Fit, FitResult
from motet.learning.objectives.supervised import Batch
from motet.learning.packed.cuda_graphs import CudaGraphs
from motet.learning.packed.device_dataset import DeviceDataset
from motet.learning.packed.host_copy import HostCopy
from motet.learning.packed.packed_model import PackedModel
from motet.learning.packed.packed_optimizer import FusedOptimizer
from motet.learning.training.batch_order import batches_for_job
from motet.learning.training.micro_batches import count_rows, split_batch
from motet.learning.training.optimizer import prepare_optimizer, read_optimizer_state
from motet.learning.training.step_schedule import DeviceSchedule, HostSchedule, ReadBatch, StepSchedule

_LEAVING_GROUPS = 8  # with CUDA graphs, finished clients stay at learning rate 0 until 1/8 of all can leave at once


def fit(
    jobs: Sequence[Fit],
    model: PackedModel,
    source: ReadBatch | DeviceDataset,
    graphs: CudaGraphs | None = None,
    use_bf16: bool = False,
) -> list[FitResult | JobFailure]:
    """Train jobs with the same model, objective and optimizer, sorted by their number of steps, longest first."""
    batches = [batches_for_job(job) for job in jobs]
    model.model.frozen_weights.apply(jobs[0].base_update)
    model.load_clients([job.start for job in jobs], _trained_token_ids(jobs))
    model.train()
    model.train_only(jobs[0].train_only)
    # A client that stays at learning rate 0 would still decay its moments and count steps.
    keeps_state = any(job.keep_optimizer_state for job in jobs)
    group = 1 if graphs is None or keeps_state else -(-len(jobs) // _LEAVING_GROUPS)
    schedule: StepSchedule = (
        DeviceSchedule(jobs, batches, model, source, group)
        if isinstance(source, DeviceDataset)
        else HostSchedule(jobs, batches, model, source)
    )
    training = Training(jobs, model, schedule, use_bf16)
    if graphs is not None:  # buffers may have moved
        graphs.drop(lambda key: key[0][0] == id(model) and key[1] != model.buffers.generation)
    steps = len(batches[0])
    seed = Seed(jobs[0].seed) if len(jobs) == 1 else Seed(0, tuple(job.seed for job in jobs))
    with seeded_torch(seed.derive("dropout").to_int(), model.device), warnings.catch_warnings():
        # Expected: the rows of a stacked matrix are far apart in memory.
        warnings.filterwarnings("ignore", message="grad and param do not obey")
        if steps:
            training.prepare()
        for step in range(steps):
            training.run_step(step, graphs)
    return training.results([sum(len(indices) for indices in client) for client in batches])


class Training:
    """The state of one call of `fit`."""

    def __init__(self, jobs: Sequence[Fit], model: PackedModel, schedule: StepSchedule, use_bf16: bool) -> None:
        self.jobs, self.model, self.schedule, self.use_bf16 = jobs, model, schedule, use_bf16
        self.objective = jobs[0].objective
        solvers = [job.solver for job in jobs]
        scalars = model.buffers.write_scalars
        uses_clipping, uses_proximal = any(s.clip for s in solvers), any(s.proximal_mu for s in solvers)
        self.clip_norms = scalars("clip_norm", [s.clip or float("inf") for s in solvers]) if uses_clipping else None
        self.proximal_mus = scalars("proximal_mu", [s.proximal_mu for s in solvers]) if uses_proximal else None
        if self.proximal_mus is not None:
            anchors = model.buffers.proximal_anchors.view(model.clients, model.size)
            self.anchors = model.write_vectors([job.proximal_anchor or job.start for job in jobs], anchors)
        self.corrections: Tensor | None = None
        if any(job.gradient_correction is not None for job in jobs):
            corrections = [job.gradient_correction or job.start.zeros_like() for job in jobs]
            buffer = model.buffers.gradient_corrections.view(model.clients, model.size)
            self.corrections = model.write_vectors(corrections, buffer)
        decays = [s.weight_decay for s in solvers]
        self.weight_decays = scalars("weight_decay", decays) if any(decays) else None
        self.decay_mask: Tensor | None = None
        changes_grads = uses_proximal or self.corrections is not None or any(s.micro_batch for s in solvers)
        uses_momentum = solvers[0].optimizer == "sgd" and solvers[0].momentum > 0
        self.is_fused = model.optimizer_kernels is not None and not (changes_grads or uses_momentum)
        self.optimizer = prepare_optimizer(model, jobs, self.is_fused)
        is_shared = len(jobs) > 1 and all(job.start is jobs[0].start for job in jobs)
        self.shared_start = jobs[0].start if is_shared else None

    def prepare(self) -> None:
        """Do what comes before the first step."""
        if self.weight_decays is not None:
            self.decay_mask = self._find_decay_mask()
        if isinstance(self.optimizer, FusedOptimizer):
            self.model.write_grads_directly(enabled=True)
            self.optimizer.round_weights()

    def run_step(self, step: int, graphs: CudaGraphs | None) -> None:
        model, clients = self.model, self.schedule.num_active(step)
        if clients != model.client_axis.clients:
            model.keep_first(clients)
        shapes = self.schedule.start_step(step)
        if graphs is None:
            self._step()
            return
        optional = (self.clip_norms, self.proximal_mus, self.corrections, self.weight_decays)
        absent = tuple(value is None for value in optional)
        first = self.jobs[0]
        operations = (
            id(model),
            self.objective,
            first.train_only,
            first.solver.micro_batch,
            self.optimizer.number,
            *absent,
        )
        key = (operations, model.buffers.generation, model.clients, model.num_trained, clients, shapes)
        graphs.run(key, (id(model), self.objective), self._step)

    def _step(self) -> None:
        clients = self.model.client_axis.clients
        params, grads = self.model.params[:clients], self.model.grads[:clients]
        rates = self.schedule.learning_rates(clients)
        if isinstance(self.optimizer, FusedOptimizer):
            self.model.drop_leaf_grads()
            losses = self._compute_grads(clients)
            self._decay_weights(rates, params)
            self.optimizer.step(torch.as_tensor(rates), clients, self.clip_norms)
            self.schedule.record_losses(losses)
            return
        self.model.begin_step()
        losses = self._compute_grads(clients)
        if self.proximal_mus is not None:
            grads.addcmul_(params - self.anchors[:clients], self.proximal_mus[:clients])
        if self.corrections is not None:
            grads.add_(self.corrections[:clients])
        if self.clip_norms is not None:
            norms = torch.linalg.vector_norm(grads, dim=1, keepdim=True)
            grads.mul_((self.clip_norms[:clients] / (norms + 1e-6)).clamp(max=1))
        self._decay_weights(rates, params)
        self.optimizer.step(rates, clients)
        self.schedule.record_losses(losses)

    def _decay_weights(self, rates: Tensor | list[float], params: Tensor) -> None:
        if self.weight_decays is not None and self.decay_mask is not None:
            shrink = -torch.as_tensor(rates, device=params.device).unsqueeze(1) * self.weight_decays[: len(params)]
            params.addcmul_(params * self.decay_mask, shrink)

    def _compute_grads(self, clients: int) -> Tensor:
        """Compute the gradients of the current batch, and return the loss of each client, [clients]."""
        batch, example_weights = self.schedule.batch(clients), self.schedule.example_weights(clients)
        micro_batch = self.jobs[0].solver.micro_batch
        if micro_batch is None or micro_batch >= count_rows(batch, clients):
            sums, totals = self._weighted_losses(batch, example_weights, clients)
            losses = sums / totals.clamp(min=1e-9)
            self._backward(losses)
            self.model.collect_grads()
            return losses.detach()
        if self.objective.needs_whole_batch:
            raise RunError(
                f"solver.micro_batch is {micro_batch}, but {type(self.objective).__name__} cannot split a batch; leave "
                "it out, or lower solver.batch."
            )
        parts = [
            self._add_grads(part, part_weights, clients, is_first=i == 0)
            for i, (part, part_weights) in enumerate(split_batch(batch, example_weights, clients, micro_batch))
        ]
        totals = torch.stack([totals for _, totals in parts]).sum(0).clamp(min=1e-9)
        self.model.grads[:clients].div_(totals.unsqueeze(1))
        return torch.stack([sums for sums, _ in parts]).sum(0) / totals

    def _add_grads(
        self, batch: Batch, example_weights: Tensor | None, clients: int, is_first: bool
    ) -> tuple[Tensor, Tensor]:
        """Add the gradients of a part of a batch; return its weighted losses and its weight, both [clients]."""
        self.model.drop_leaf_grads()
        sums, totals = self._weighted_losses(batch, example_weights, clients)
        self._backward(sums)
        self.model.collect_grads(add=not is_first)
        return sums.detach(), totals.detach()

    def _backward(self, losses: Tensor) -> None:
        if not losses.requires_grad:
            raise RunError(
                f"the loss of {type(self.objective).__name__} does not depend on the layers of "
                f"train_only ({self.jobs[0].train_only}); select layers that the objective uses."
            )
        losses.sum().backward()  # type: ignore[no-untyped-call]

    def _weighted_losses(self, batch: Batch, example_weights: Tensor | None, clients: int) -> tuple[Tensor, Tensor]:
        """Return the sum of the weighted losses of each client and the sum of its weights, both [clients]."""
        with self._autocast():
            losses, weights = self.objective.losses(self.model, batch)
        losses, weights = losses.view(clients, -1), weights.view(clients, -1)
        weights = weights if example_weights is None else weights * example_weights
        return (losses * weights).sum(1), weights.sum(1)

    def _autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.model.device.type, torch.bfloat16) if self.use_bf16 else nullcontext()

    def _find_decay_mask(self) -> Tensor:
        """Return 1 for elements with weight decay: those of matrices that get a gradient from the objective.

        Parameters without a gradient are not trained at all.
        """
        model, masks = self.model, self.model.buffers.decay_masks
        key = (self.objective, self.jobs[0].train_only, model.size)
        if key not in masks:
            mask = torch.zeros(1, model.size, device=model.device)
            self.schedule.start_step(0)
            model.begin_step()
            with seeded_torch(0, model.device):
                self._compute_grads(model.clients)
            for name, view in model.tensor_views(mask):
                if model.leaves[name].grad is not None and view.dim() > 2:
                    view.fill_(1)
            masks[key] = mask
        return masks[key]

    def _norms(self) -> Tensor:
        """Return the L2 norm of each client's vector, and that of their start if packed clients share it."""
        norms: Tensor = torch.linalg.vector_norm(self.model.params, dim=1)
        if self.shared_start is None:
            return norms
        return torch.cat([norms, torch.linalg.vector_norm(self.shared_start.flat.to(norms), keepdim=True)])

    def _record_bounds(self, params: Sequence[Params], norms: Sequence[float]) -> None:
        """Record that no number exceeds an L2 norm: that of the client, plus that of the start for untrained embeddings."""
        if self.shared_start is not None:
            *client_norms, start_norm = norms
            self.shared_start.record_bound(start_norm)
            for client_params, norm in zip(params, client_norms, strict=True):
                client_params.record_bound(norm + start_norm)

    def results(self, examples_processed: Sequence[int]) -> list[FitResult | JobFailure]:
        # In this order, the host waits only for the training, and goes on while the device writes the models out.
        norms_copy, losses_copy = HostCopy(self._norms()), HostCopy(self.schedule.step_losses)
        params = [self.model.read_vector(i, job.start) for i, job in enumerate(self.jobs)]
        norms = norms_copy.wait().tolist()  # the only time in a job that the host waits for the device
        losses = self.schedule.split_losses(losses_copy.wait())
        self._record_bounds(params, norms)
        results: list[FitResult | JobFailure] = []
        for i, job in enumerate(self.jobs):
            # The square of a large number is infinite, and so is the norm.
            if (math.isfinite(norms[i]) or is_finite(self.model.params[i])) and is_finite(losses[i]):
                keeps_state = job.keep_optimizer_state
                optimizer_state = read_optimizer_state(self.model, self.optimizer, i, job) if keeps_state else None
                results.append(FitResult(params[i], losses[i], examples_processed[i], optimizer_state))
            else:
                results.append(JobFailure(_divergence_error(job, losses[i])))
        return results


def _trained_token_ids(jobs: Sequence[Fit]) -> list[np.ndarray] | None:
    """Return the token ids of each job's examples if training changes no other word embeddings, else None."""
    for job in jobs:
        # Weight decay and optimizer state change all rows; a job that needs the full model may read other words.
        touches_all_rows = (
            job.solver.weight_decay or job.optimizer_state or job.keep_optimizer_state or job.needs_full_model
        ) or job.gradient_correction is not None
        moves_to_anchor = job.solver.proximal_mu and job.proximal_anchor is not None
        if touches_all_rows or moves_to_anchor or not len(job.examples):
            return None
    return [job.examples.unique_token_ids() for job in jobs]


def _divergence_error(job: Fit, losses: Tensor) -> RunError:
    not_finite = (~torch.isfinite(losses)).nonzero()
    step = int(not_finite[0]) if len(not_finite) else len(losses) - 1
    result = f"a loss of {float(losses[step]):g}" if len(not_finite) else "an update that is not finite"
    clip = f"clip {job.solver.clip:g}" if job.solver.clip else "no clipping"
    advice = "lower solver.lr" if job.solver.clip else "lower solver.lr or set solver.clip=1.0"
    return RunError(
        f"training gave {result} at step {step + 1} of {len(losses)} "
        f"({job.solver.optimizer}, lr {job.solver.learning_rate:g}, {clip}), where finite numbers were expected; "
        f"{advice}."
    )
