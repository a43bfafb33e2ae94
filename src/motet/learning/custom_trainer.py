"""Your own training code, federated: four operations that know nothing of distribution."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from motet.core.errors import ConfigError, RunError
from motet.core.params import Params
from motet.core.program import ClientList, InitialModels
from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.core.work import Job, Work
from motet.learning.context import INITIAL_MODEL, EvaluationResult
from motet.learning.jobs import FitResult
from motet.learning.solver import Solver


class Trainer(Protocol):
    """A single-process trainer. `data` is whatever you gave the client; `test` returns named numbers."""

    def get_parameters(self) -> Mapping[str, Tensor]: ...
    def set_parameters(self, parameters: Mapping[str, Tensor]) -> None: ...
    def train(self, data: Any) -> None: ...
    def test(self, data: Any) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class CustomTask:
    primary_metric: str
    metric_names: tuple[str, ...]
    name: str = "own"


@dataclass(frozen=True, eq=False)
class CustomModel:
    initial_params: Params


@dataclass(frozen=True, eq=False)
class CustomContext:
    """What an algorithm's client methods see of somebody else's trainer."""

    client: ClientId
    round: int
    trainer: Trainer
    model: CustomModel
    splits: Mapping[str, Any]
    seed: Seed
    invoke: Callable[[str, Any], Work[Any]] | None = None
    read_state: Callable[[str], Any] = lambda program: None

    @property
    def initial_params(self) -> Params:
        return self.model.initial_params.updated(self.read_state(INITIAL_MODEL))

    @property
    def size(self) -> int:
        return len(self.splits["train"])

    @property
    def participant(self) -> CustomContext:
        return self

    def split(self, name: str) -> Any:
        if name not in self.splits:
            raise ConfigError(
                f"{self.client}: there is no data called '{name}' with your own trainer, only {', '.join(self.splits)}; your "
                "data cannot be put together here, so for one model of it all give one client everything."
            )
        return self.splits[name]

    def fit(self, start: Params, solver: Solver, **options: Any) -> Generator[Job, Any, FitResult]:
        if solver.proximal_mu:
            raise ConfigError(
                "your own trainer owns its loss, so fedprox and ditto cannot add their term to it; use fedavg or fedopt."
            )
        self.trainer.set_parameters(start.tensors())
        self.trainer.train(self.splits["train"])
        end = Params(start.layout, Params.from_tensors(_floats(self.trainer.get_parameters())).flat)
        if not end.is_finite():
            raise RunError(
                f"{self.client}, round {self.round}: the trainer left numbers that are not finite; lower its rate."
            )
        return FitResult(end, torch.zeros(1), self.size)
        yield  # a generator like the others, which just has no job for the executor

    def evaluate(self, params: Params, split: str, per_example: bool = False) -> Generator[Job, Any, EvaluationResult]:
        self.trainer.set_parameters(params.tensors())
        return EvaluationResult(
            {name: float(value) for name, value in self.trainer.test(self.splits[split]).items()}, None
        )
        yield


@dataclass(frozen=True, eq=False)
class CustomFederation:
    """Clients and their data, and one trainer that plays them in turn."""

    trainer: Trainer
    data: Mapping[ClientId, tuple[Any, Any]]  # training data and test data
    held_out: Any
    task: CustomTask
    seed: Seed
    clients: ClientList
    model: CustomModel
    name: str = "own"

    def group_for(self, client: ClientId) -> CustomFederation:
        """All clients are alike."""
        return self

    def initial_models(self) -> InitialModels:
        return InitialModels(self.model.initial_params, self.clients)

    def context(
        self,
        client: ClientId,
        round: int,
        address: str,
        invoke: Callable[[str, Any], Work[Any]] | None = None,
        read_state: Callable[[str], Any] = lambda program: None,
    ) -> CustomContext:
        train, test = self.data[client]
        splits = {"train": train, "test": test, "global": self.held_out}
        seed = self.seed.derive("client", client, round, address.partition(".")[2])
        return CustomContext(client, round, self.trainer, self.model, splits, seed, invoke, read_state)

    def server_context(self, round: int) -> CustomContext:
        splits = {"train": (), "global": self.held_out}
        return CustomContext("the server", round, self.trainer, self.model, splits, self.seed.derive("server", round))


def custom_federation(
    trainer: Trainer,
    data: Mapping[ClientId, tuple[Any, Any]],
    held_out: Any,
    *,
    primary_metric: str = "",
    seed: int = 42,
    headline: str = "",
) -> CustomFederation:
    """Bring a model, data and a single-process trainer; distribution is ours.

    `data` maps each client to its training and test data, `held_out` is the global test set. The trainer's `test` must
    report `primary_metric`; `headline` is its former name and still works.
    """
    primary_metric = primary_metric or headline
    if not primary_metric:
        raise ConfigError(
            "custom_federation: primary_metric is missing; name a metric that the trainer's test reports."
        )
    if not data:
        raise ConfigError("custom_federation: data has no clients; give at least one, as {name: (train, test)}.")
    fresh = Params.from_tensors(_floats(trainer.get_parameters()))
    scores = trainer.test(held_out)
    if primary_metric not in scores:
        raise ConfigError(
            f"custom_federation: the trainer's test reports {', '.join(scores)}, not the primary metric '{primary_metric}'."
        )
    task = CustomTask(primary_metric, tuple(scores))
    return CustomFederation(trainer, data, held_out, task, Seed(seed), tuple(sorted(data)), CustomModel(fresh))


def _floats(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().float().cpu() for name, value in parameters.items()}
