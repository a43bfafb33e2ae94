"""Clients written for Flower (`NumPyClient` or `Client`) as clients of a Motet run, without a change to them.

A Flower client has its own model, data and training loop, so this is a federation with a custom trainer: FedAvg and
other methods that only average updates, every codec, secure sums and noise work; others are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from motet.core.errors import ConfigError, RunError
from motet.core.script import ClientId
from motet.learning.custom_trainer import CustomFederation, custom_federation

Arrays = list[np.ndarray]
Settings = Mapping[str, bool | bytes | float | int | str]


class FlowerClientData:
    """A Flower client in place of its data. The number of examples is known once the client has trained or tested."""

    def __init__(self, name: ClientId, client: Any) -> None:
        self.name, self.client, self.examples = name, client, 0

    def __len__(self) -> int:
        return self.examples


class FlowerTrainer:
    """Calls `fit` and `evaluate` of the client whose turn it is. Parameters are a list, so their names are numbers."""

    def __init__(self, initial: Sequence[np.ndarray], fit_config: Settings, evaluate_config: Settings) -> None:
        if not initial:
            raise ConfigError(
                "flower_federation: the client's get_parameters returned no arrays; give initial_parameters, a list of "
                "arrays with the first weights of the model."
            )
        self.arrays: Arrays = [np.asarray(array) for array in initial]
        self.types = [array.dtype for array in self.arrays]
        self.fit_config, self.evaluate_config = dict(fit_config), dict(evaluate_config)

    def get_parameters(self) -> dict[str, Tensor]:
        return {f"array{i:04d}": torch.from_numpy(np.array(array)) for i, array in enumerate(self.arrays)}

    def set_parameters(self, parameters: Mapping[str, Tensor]) -> None:
        arrays = [parameters[name].detach().cpu().numpy() for name in sorted(parameters)]
        self.arrays = [_to_type(array, kind) for array, kind in zip(arrays, self.types, strict=True)]

    def train(self, data: FlowerClientData) -> None:
        result = data.client.fit(self.arrays, dict(self.fit_config))
        arrays, examples = _check_result(data.name, "fit", result)
        shapes, expected = [np.shape(a) for a in arrays], [a.shape for a in self.arrays]
        if shapes != expected:
            raise RunError(f"{data.name}: fit returned arrays of shapes {shapes}; expected {expected}.")
        self.arrays, data.examples = [np.asarray(array) for array in arrays], examples

    def test(self, data: Sequence[FlowerClientData]) -> dict[str, float]:
        """Return the scores of one or several clients, weighted by their numbers of examples."""
        scores: list[dict[str, float]] = []
        weights: list[int] = []
        for member in data:
            result = member.client.evaluate(self.arrays, dict(self.evaluate_config))
            loss, examples = _check_result(member.name, "evaluate", result)
            numbers = {k: float(v) for k, v in result[2].items() if isinstance(v, int | float | np.number)}
            scores.append(numbers if loss is None else {"loss": float(loss), **numbers})
            weights.append(examples)
        names = [name for name in scores[0] if all(name in score for score in scores)]
        total = max(1, sum(weights))
        return {n: sum(w * s[n] for w, s in zip(weights, scores, strict=True)) / total for n in names}


def flower_federation(
    clients: Mapping[ClientId, Any],
    *,
    primary_metric: str,
    initial_parameters: Sequence[np.ndarray] | None = None,
    fit_config: Settings = MappingProxyType({}),
    evaluate_config: Settings = MappingProxyType({}),
    seed: int = 42,
) -> CustomFederation:
    """Make a federation of Flower's clients, by name: objects of `NumPyClient`, or what `to_client()` returns.

    `fit_config` and `evaluate_config` are the second argument of `fit` and `evaluate`. `evaluate` must report
    `primary_metric`, or "loss". The global score is the mean over all clients, weighted by their numbers of examples.
    """
    if not clients:
        raise ConfigError("flower_federation: there are no clients; give at least one, as {name: client}.")
    members = {name: FlowerClientData(name, _to_numpy_client(name, client)) for name, client in clients.items()}
    first = next(iter(members.values())).client
    initial = first.get_parameters({}) if initial_parameters is None else initial_parameters
    trainer = FlowerTrainer(initial, fit_config, evaluate_config)
    data = {name: (member, [member]) for name, member in members.items()}
    return custom_federation(trainer, data, list(members.values()), primary_metric=primary_metric, seed=seed)


def _to_numpy_client(name: ClientId, client: Any) -> Any:
    """Return the object with `fit(arrays, config)`. `to_client()` of Flower keeps it as an attribute."""
    client = getattr(client, "numpy_client", client)
    missing = [
        method for method in ("get_parameters", "fit", "evaluate") if not callable(getattr(client, method, None))
    ]
    if missing:
        raise ConfigError(
            f"flower_federation: {name} is a {type(client).__name__} without {', '.join(missing)}; expected a NumPyClient."
        )
    return client


def _check_result(name: ClientId, method: str, result: Any) -> tuple[Any, int]:
    """Return the first value and the number of examples of what a client returned."""
    is_triple = isinstance(result, tuple) and len(result) == 3 and isinstance(result[2], Mapping)
    if not is_triple or not isinstance(result[1], int | np.integer) or result[1] < 0:
        expected = "(arrays, number of examples, metrics)" if method == "fit" else "(loss, number of examples, metrics)"
        raise RunError(f"{name}: {method} returned a {type(result).__name__} that is not {expected}.")
    return result[0], int(result[1])


def _to_type(array: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Return the array as the client's type. Counters, such as those of a batch norm, are rounded."""
    return (np.rint(array) if np.issubdtype(kind, np.integer) else array).astype(kind)
