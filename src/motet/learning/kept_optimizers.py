"""The optimizers that a client keeps between rounds (`solver.keep_state`), next to the state of its programs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from motet.core.params import Params
from motet.core.script import ClientId
from motet.learning.jobs import Fit, OptimizerState
from motet.learning.lr_schedule import LRHorizon


class OptimizerStore(Protocol):
    """Where a client keeps its states."""

    def get(self, program: str, client: ClientId) -> Any: ...
    def put(self, program: str, client: ClientId, value: Any) -> None: ...


@dataclass(eq=False)
class KeptOptimizers:
    """The optimizers of one call of a client method: one for each training, in the order of the trainings.

    `rounds` are the rounds that the method's program takes part in. A schedule over all rounds spans them.
    """

    store: OptimizerStore
    client: ClientId
    address: str
    round: int
    rounds: range
    _trainings: int = field(default=0, init=False)

    def next_key(self) -> str:
        """Return the key under which the next training keeps its optimizer."""
        self._trainings += 1
        return f"optimizer.{self.address}.{self._trainings}"

    def place_in_schedule(self, job: Fit) -> Fit:
        """Return the job with its place in a schedule over all rounds."""
        steps = job.solver.num_steps(len(job.examples))
        horizon = LRHorizon((self.round - self.rounds.start) * steps, len(self.rounds) * steps)
        return replace(job, lr_horizon=job.lr_horizon or horizon)

    def continue_job(self, job: Fit, key: str) -> Fit:
        """Return the job with the optimizer of the last round."""
        state = self.store.get(key, self.client)
        return replace(
            job,
            optimizer_state=None if state is None else fill_optimizer_state(state, job.start),
            keep_optimizer_state=True,
        )

    def save(self, key: str, state: OptimizerState | None) -> None:
        if state is not None:
            self.store.put(key, self.client, state)


def fill_optimizer_state(state: OptimizerState, model: Params) -> OptimizerState:
    """Return an optimizer state for all layers of a model, with zeros for the layers that are not stored.

    The moments stay on the device where they are stored. All clients of a round load their moments at once, and these
    may not fit on a GPU that trains only a few clients at a time.
    """
    if all(moment.layout == model.layout for moment in state.moments):
        return state
    return OptimizerState(state.steps, tuple(_zeros_on(m.flat.device, model).updated(m) for m in state.moments))


def _zeros_on(device: torch.device, model: Params) -> Params:
    return Params(model.layout, torch.zeros(model.layout.size, device=device))
