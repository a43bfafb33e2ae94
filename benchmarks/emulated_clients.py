"""Clients that do not train, but sleep for as long as a client of their size and speed would, and actors that run them."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from motet.core.messages import message
from motet.core.params import Params
from motet.core.script import Program, Script, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Executor, Job, Work
from motet.experiment.deploy.ray_actor import RayActor
from motet.experiment.deploy.ray_partial_sums import PartialSumRunner, TaskStates
from motet.transport.client_runtime import ClientRuntime

MEAN_SECONDS = 0.1  # of an emulated client


@cache
def client_traits(client: str) -> tuple[int, float]:
    """Return the examples and the speed of a client. Both are log-normal, so that examples alone do not tell the time.

    They follow from the first number in its name.
    """
    rng = np.random.default_rng(int(client.split("-")[1]))
    return max(1, int(rng.lognormal(4.0, 0.8))), float(rng.lognormal(0.0, 0.5))


def training_seconds(client: str) -> float:
    examples, speed = client_traits(client)
    return MEAN_SECONDS * examples / speed / 85  # exp(4 + 0.8² / 2 + 0.5² / 2) = 85


@message
@dataclass(frozen=True, eq=False)
class Pause(Job):
    """Stands for a training job: it takes `seconds` and returns other parameters of the same size."""

    start: Params
    seconds: float
    factor: float

    @property
    def key(self) -> Hashable:
        return "pause"


class PauseExecutor(Executor):
    """Runs one `Pause` after another."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Hashable, Pause]] = []

    def submit(self, key: Hashable, job: Job) -> None:
        assert isinstance(job, Pause)
        self.submitted.append((key, job))

    def wait_completed(self) -> Sequence[tuple[Hashable, Any]]:
        key, job = self.submitted.pop(0)
        return [(key, self.run(job))]

    def run(self, job: Job) -> Any:
        assert isinstance(job, Pause)
        time.sleep(job.seconds)
        return job.start * job.factor


@dataclass(frozen=True)
class EmulatedTraining(Program):
    """Every client takes its time and returns an update. With `keeps_state`, it also keeps it, and starts from it."""

    sleeps: bool
    keeps_state: bool = False
    name: str = "emulated"

    def round(self, params: Params, cohort: tuple[str, ...]) -> Script[Weighted]:
        return (yield from total(self.train, to_all(cohort, params)))

    @work(reveals="sum")
    def train(self, client: str, params: Params, client_state: Params | None) -> Work[tuple[Weighted, Params | None]]:
        examples, speed = client_traits(client)
        start = params if client_state is None else params + client_state
        after = yield Pause(start, training_seconds(client) if self.sleeps else 0.0, speed)
        update = after - params
        return Weighted(update, float(examples)), update if self.keeps_state else None


TRAININGS = [EmulatedTraining(sleeps, keeps_state) for sleeps in (False, True) for keeps_state in (False, True)]


def make_runtime(training: EmulatedTraining, executor: Executor, states: Any) -> ClientRuntime:
    return ClientRuntime([training], lambda client, *_: client, executor, states)


class EmulatingActor(RayActor):
    """An actor with the emulated clients instead of those of a recipe."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.executor, self.shared_values, self.runners = PauseExecutor(), {}, {}
        for training in TRAININGS:
            states = TaskStates()
            self.runners[str(training)] = PartialSumRunner(make_runtime(training, self.executor, states), states)
