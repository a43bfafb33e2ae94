"""Federated training with your own training code, wrapped in four methods that know nothing about federation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sized
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from motet.core.errors import ConfigError, RunError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.program import ClientList, InitialModels
from motet.core.rng import Seed, seeded_torch
from motet.core.script import ClientId
from motet.core.work import Job, Work
from motet.learning.context import INITIAL_MODEL, EvaluationResult
from motet.learning.jobs import FitResult
from motet.learning.kept_optimizers import KeptOptimizers
from motet.learning.solver import Solver


class Trainer(Protocol):
    """A single-process trainer. `data` is what you passed for the client; `test` returns metrics by name.

    `train(data)` may have a second parameter, `seed`: a number that depends on the run's seed, the client and the round.
    The random numbers of torch follow from it in any case.

    FedAvg weights a client by the number of its training examples. This is the length of the data: of the dataset of a
    `DataLoader`, and of the columns of a tuple or a mapping such as `(inputs, labels)`. If your data has no such length,
    for example because it is the path of a file, give the trainer a method `count_examples(data)`.
    """

    def get_parameters(self) -> Mapping[str, Tensor]: ...
    def set_parameters(self, parameters: Mapping[str, Tensor]) -> None: ...
    @property
    def train(self) -> Callable[..., None]: ...
    def test(self, data: Any) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class CustomTask:
    primary_metric: str
    metric_names: tuple[str, ...]
    name: str = "own"
    partial_metrics: tuple[str, ...] = ()  # a trainer reports all of its metrics for every client


@dataclass(frozen=True, eq=False)
class CustomModel:
    initial_params: Params


@dataclass(frozen=True, eq=False)
class CustomContext:
    """The context of client methods, backed by a user's trainer. The counterpart of `learning.context.Context`."""

    client: ClientId
    round: int
    trainer: Trainer
    task: CustomTask
    model: CustomModel
    splits: Mapping[str, Any]
    seed: Seed
    invoke: Callable[[str, Any], Work[Any]] | None = None
    read_state: Callable[[str], Any] = lambda program: None

    def keep_optimizers(self, kept: KeptOptimizers) -> CustomContext:
        return self

    @property
    def initial_params(self) -> Params:
        return self.model.initial_params.updated(self.read_state(INITIAL_MODEL))

    @property
    def size(self) -> int:
        return _count_examples(self.trainer, self.client, self.splits["train"])

    @property
    def participant(self) -> CustomContext:
        return self

    def split(self, name: str) -> Any:
        if name not in self.splits:
            raise ConfigError(
                f"{self.client}: there is no split '{name}' with a custom trainer, only {', '.join(self.splits)}. "
                "Data of several clients cannot be combined here; to train one model on all of it, give one client all data."
            )
        return self.splits[name]

    def fit(
        self, start: Params, solver: Solver, *, purpose: str = "fit", **options: Any
    ) -> Generator[Job, Any, FitResult]:
        """Train with the user's trainer. Options that change the training loop are refused: the loop is the trainer's."""
        if solver.proximal_mu:
            raise ConfigError(
                "a custom trainer computes the loss itself, so fedprox and ditto cannot add their proximal term; "
                "use fedavg or fedopt."
            )
        if solver.spans_run:
            raise ConfigError(
                "solver.keep_state is true or solver.schedule_span is run, but a custom trainer has its own optimizer and "
                "schedule; keep them in the trainer, and set solver.keep_state=false and solver.schedule_span=round."
            )
        if options.get("train_only") == Layers.all():
            del options["train_only"]
        if refused := [name for name, value in options.items() if value is not None and value is not False]:
            raise ConfigError(
                f"this algorithm trains with {', '.join(refused)}, which a custom trainer cannot do; "
                "use fedavg or fedopt, or train a model of the recipe."
            )
        self.trainer.set_parameters(start.tensors())
        returned = self._train(self.seed.derive(purpose).to_int())
        trained = _read_parameters(self.trainer)
        trained.check_same_layout(start)  # by name: a vector of the same length may hold other tensors
        params = Params(start.layout, trained.flat)
        if returned is not None and self.size and torch.equal(params.flat, start.flat):
            raise RunError(
                f"the trainer's train returned a {type(returned).__name__}, and its parameters are as before. Returned "
                "values are ignored: get_parameters must return the trained parameters."
            )
        if not params.is_finite():
            raise RunError(
                f"round {self.round + 1}: the trainer returned parameters that are not finite; lower its learning rate."
            )
        return FitResult(params, losses=torch.zeros(1), examples_processed=self.size)
        yield  # makes this a generator; the executor gets no job

    def _train(self, seed: int) -> object:
        takes_seed = "seed" in inspect.signature(self.trainer.train).parameters
        options = {"seed": seed % 2**32} if takes_seed else {}  # 32 bits, as NumPy's generators take
        with seeded_torch(seed, torch.device("cuda" if torch.cuda.is_available() else "cpu")):
            return self.trainer.train(self.splits["train"], **options)

    def infer(self, *inputs: Any, **options: Any) -> NoReturn:
        raise ConfigError(
            "this algorithm reads a model's predictions, which a custom trainer does not return; "
            "use fedavg or fedopt, or train a model of the recipe."
        )

    def evaluate(self, params: Params, split: str, per_example: bool = False) -> Generator[Job, Any, EvaluationResult]:
        self.trainer.set_parameters(params.tensors())
        return EvaluationResult(_test(self.trainer, self.splits[split]))
        yield


@dataclass(frozen=True, eq=False)
class CustomFederation:
    """Clients, their data, and one trainer that simulates them in turn."""

    trainer: Trainer
    data: Mapping[ClientId, tuple[Any, Any]]  # (train, test)
    global_test: Any
    task: CustomTask
    seed: Seed
    clients: ClientList
    model: CustomModel
    name: str = "own"

    @property
    def notes(self) -> list[str]:
        return []

    def group_for(self, client: ClientId) -> CustomFederation:
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
        train, test = _split_pair(client, self.data[client])
        splits = {"train": train, "test": test, "global": self.global_test}
        seed = self.seed.derive("client", client, round, address.partition(".")[2])
        return CustomContext(
            client=client,
            round=round,
            trainer=self.trainer,
            task=self.task,
            model=self.model,
            splits=splits,
            seed=seed,
            invoke=invoke,
            read_state=read_state,
        )

    def server_context(self, round: int) -> CustomContext:
        splits = {"train": [], "global": self.global_test}
        return CustomContext(
            client="the server",
            round=round,
            trainer=self.trainer,
            task=self.task,
            model=self.model,
            splits=splits,
            seed=self.seed.derive("server", round),
        )


def custom_federation(
    trainer: Trainer,
    data: Mapping[ClientId, tuple[Any, Any]],
    global_test: Any,
    *,
    primary_metric: str,
    seed: int = 42,
) -> CustomFederation:
    """Make a federation from a single-process trainer and each client's data.

    `data` maps each client to its training and test data, `global_test` is the global test set. The trainer's `test`
    must report `primary_metric`.
    """
    _check_methods(trainer)
    if not isinstance(data, Mapping):
        raise ConfigError(f"custom_federation: data is a {type(data).__name__}; expected {{name: (train, test)}}.")
    if not data:
        raise ConfigError("custom_federation: data has no clients; give at least one, as {name: (train, test)}.")
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise ConfigError(f"custom_federation: seed is {seed!r}; expected a whole number, such as 42.")
    initial_params = _read_parameters(trainer)
    scores = _test(trainer, global_test)
    if primary_metric not in scores:
        raise ConfigError(
            f"custom_federation: the trainer's test reports {', '.join(scores)}, not the primary metric '{primary_metric}'."
        )
    federation = CustomFederation(
        trainer=trainer,
        data=data,
        global_test=global_test,
        task=CustomTask(primary_metric, tuple(scores)),
        seed=Seed(int(seed)),
        clients=tuple(sorted(data)),
        model=CustomModel(initial_params),
    )
    _ = federation.context(federation.clients[0], 0, "").size  # mistakes in the data are errors before training
    return federation


def _check_methods(trainer: object) -> None:
    if isinstance(trainer, type):
        raise ConfigError(
            f"custom_federation: the trainer is the class {trainer.__name__}; pass an object: {trainer.__name__}(…)."
        )
    methods = ("get_parameters", "set_parameters", "train", "test")
    missing = [method for method in methods if not callable(getattr(trainer, method, None))]
    if missing:
        hint = " For a client of Flower, use motet.flower_federation." if hasattr(trainer, "fit") else ""
        raise ConfigError(
            f"custom_federation: the trainer, a {type(trainer).__name__}, has no {', '.join(missing)}; "
            f"it needs the methods {', '.join(methods)}.{hint}"
        )


def _read_parameters(trainer: Trainer) -> Params:
    parameters: object = trainer.get_parameters()
    if not isinstance(parameters, Mapping) or not all(isinstance(value, Tensor) for value in parameters.values()):
        raise ConfigError(
            f"the trainer's get_parameters returned {_describe(parameters)}; expected tensors by name, such as "
            "model.state_dict(). For a client of Flower, use motet.flower_federation."
        )
    return Params.from_tensors({name: value.detach().float().cpu() for name, value in parameters.items()})


def _test(trainer: Trainer, data: Any) -> dict[str, float]:
    metrics: object = trainer.test(data)
    try:
        if isinstance(metrics, Mapping):
            return {name: float(value) for name, value in metrics.items()}
    except (TypeError, ValueError):
        pass  # a value is no number
    raise ConfigError(
        f"the trainer's test returned {_describe(metrics)}; expected numbers by name, such as {{'accuracy': 0.9}}."
    )


def _describe(value: object) -> str:
    """Return `a list`, or `a dict of str and float`."""
    name = type(value).__name__
    if not isinstance(value, Mapping):
        return f"a {name}"
    return f"a {name} of {' and '.join(sorted({type(item).__name__ for item in value.values()}))}"


def _split_pair(client: ClientId, pair: Any) -> tuple[Any, Any]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ConfigError(
            f"custom_federation: the data of client '{client}' is {_describe(pair)}; expected two values, (train, test)."
        )
    return pair[0], pair[1]


def _count_examples(trainer: Trainer, client: ClientId, data: Any) -> int:
    """Return the number of examples, by which FedAvg weights a client. See `Trainer`."""
    count = getattr(trainer, "count_examples", None)
    examples = count(data) if callable(count) else _count_rows(data)
    if examples is None:
        raise ConfigError(
            f"the number of training examples of client '{client}' cannot be read from {_describe(data)}; "
            "give the trainer a method count_examples(data) that returns it."
        )
    return int(examples)


def _count_rows(data: Any) -> int | None:
    """Return the number of rows, or None if it is not clear."""
    if isinstance(data, DataLoader):
        data = data.dataset
    if isinstance(data, tuple | Mapping):
        columns = list(data.values()) if isinstance(data, Mapping) else data
        has_columns = all(isinstance(column, list) or getattr(column, "shape", ()) for column in columns)
        lengths = {len(column) for column in columns} if has_columns else set()
        return lengths.pop() if len(lengths) == 1 else None
    return len(data) if isinstance(data, Sized) and not isinstance(data, str | bytes) else None
