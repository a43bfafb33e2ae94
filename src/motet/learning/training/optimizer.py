"""The optimizer of some clients' jobs: reused from earlier jobs if possible, with the state that the jobs bring."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from motet.learning.jobs import Fit, OptimizerState
from motet.learning.packed.host_copy import write_from_host
from motet.learning.packed.packed_model import PackedModel
from motet.learning.packed.packed_optimizer import FusedOptimizer, PackedOptimizer
from motet.learning.packed.step_buffers import OptimizerKey

_STATE_NAMES = {"sgd": ("momentum_buffer",), "adamw": ("exp_avg", "exp_avg_sq")}


def prepare_optimizer(model: PackedModel, jobs: Sequence[Fit], fused: bool = False) -> PackedOptimizer | FusedOptimizer:
    """Return the packed model's optimizer of this kind, with the jobs' state loaded, or zeros."""
    optimizer = _find_or_create(model, jobs[0].solver.optimizer, jobs[0].solver.momentum, fused)
    model.grads[:, model.num_trained :].zero_()
    states, layers = [job.optimizer_state for job in jobs], jobs[0].train_only
    steps = [state.steps if state else 0 for state in states]
    keeps_state = any(job.keep_optimizer_state for job in jobs)
    write_from_host(optimizer.steps, torch.tensor(steps))
    if isinstance(optimizer, FusedOptimizer):
        new_steps = (math.inf if keeps_state else job.solver.num_steps(len(job.examples)) for job in jobs)
        last_steps = torch.tensor([done + new for done, new in zip(steps, new_steps, strict=True)])
        write_from_host(optimizer.last_steps, last_steps)
    # A fused optimizer does not read them in the first step.
    needs_zeros = isinstance(optimizer, PackedOptimizer) or keeps_state
    for index, vectors in enumerate(optimizer.state.values()):
        if needs_zeros:
            vectors.zero_()
        for i, state in enumerate(states):
            if state is not None and state.moments:
                moment = state.moments[index]
                if layers is not None:  # other layers must not move
                    moment = moment.zeros_like().updated(moment.select_layers(layers))
                model.write_vectors([moment], vectors[i : i + 1])
    return optimizer


def _find_or_create(model: PackedModel, kind: str, momentum: float, fused: bool) -> PackedOptimizer | FusedOptimizer:
    buffers, clients, size = model.buffers, model.clients, model.size
    _ = model.params, model.grads, model.bf16_grads if fused else None  # first: a reallocation drops the optimizers
    vectors = {name: buffers.optimizer_state[name].view(clients, size) for name in _STATE_NAMES[kind]}
    key = OptimizerKey(kind, momentum, clients, size, fused)
    if key not in buffers.optimizers:
        state = {} if kind == "sgd" and not momentum else vectors
        packed, kernels = model.packed_vectors() if fused else None, model.optimizer_kernels
        buffers.optimizers[key] = (
            PackedOptimizer(model.params, model.grads, state, kind, momentum)
            if packed is None or kernels is None
            else FusedOptimizer(packed, state, kernels)
        )
    return buffers.optimizers[key]


def read_optimizer_state(
    model: PackedModel, optimizer: PackedOptimizer | FusedOptimizer, i: int, job: Fit
) -> OptimizerState:
    """Return client i's optimizer state. The number of steps is known here, so nothing waits for the device."""
    moments = tuple(model.read_vector(i, job.start, vectors) for vectors in optimizer.state.values())
    before = job.optimizer_state
    if job.train_only is not None and before is not None and before.moments:  # the state of other layers is kept
        trained = [moment.select_layers(job.train_only) for moment in moments]
        moments = tuple(old.updated(new) for old, new in zip(before.moments, trained, strict=True))
    steps_before = before.steps if before is not None else 0
    return OptimizerState(steps_before + job.solver.num_steps(len(job.examples)), moments)
