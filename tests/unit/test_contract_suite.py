"""The contract suite accepts algorithms that keep the contract, and says what is wrong with those that do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from motet.algorithms import fedavg, fedrep, scaffold
from motet.codecs import Codec, float16, int8, top_k
from motet.codecs.chain import EncodedSize
from motet.codecs.row_layout import RowLayout
from motet.core.messages import message
from motet.core.params import Params
from motet.core.program import Algorithm, DummyExchange, InitialModels, Round
from motet.core.rng import Seed
from motet.core.script import ClientId, Exchange, Script, find_client_method, to_all, total, work
from motet.core.weighted import Weighted
from motet.core.work import Work
from motet.datasets.corpus import Corpus
from motet.datasets.toy_corpora import toy_classification, toy_regression
from motet.experiment.build.federation import Federation
from motet.learning.context import Context
from motet.learning.data.features import Examples
from motet.learning.jobs import Predictions
from motet.learning.solver import Solver
from motet.partitions import Partition, uniform
from motet.partitions.partition import ClientRows
from motet.tasks.classification import Classification, classification
from motet.testing import (
    check_algorithm,
    check_codec,
    check_dataset,
    check_partition,
    check_task,
    check_tracker,
    make_federation,
)

ONE_STEP = Solver(optimizer="sgd", lr=0.2, batch=8, steps=1, schedule="constant")


@pytest.fixture(scope="module")
def small() -> Federation:
    return make_federation(toy_classification(train=32, test=16, authors=4), clients=2, public_share=0.0)


@message
@dataclass(frozen=True, eq=False)
class PlainState:
    params: Params


@dataclass(frozen=True)
class Plain(Algorithm):
    """FedAvg. The classes below break one rule each."""

    solver: Solver
    name: str = "plain"

    def init(self, start: InitialModels) -> Any:
        return PlainState(start.shared)

    def round(self, state: Any, rnd: Round) -> Script[Any]:
        mean = yield from total(self.train, to_all(rnd.cohort, state.params))
        return PlainState(state.params + mean.value)

    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Any) -> Work[tuple[Any, Any]]:
        result = yield from ctx.fit(params, self.solver)
        return Weighted(result.params - params, float(ctx.size)), None

    def view(self, state: Any, client: ClientId) -> Any:
        return state.params

    def assemble(self, ctx: Context, view: Any, client_state: Any) -> Params:
        params: Params = view
        return params


def plain(solver: Solver = Solver()) -> Plain:
    """FedAvg."""
    return Plain(solver)


class SeedsGlobalState(Plain):
    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Any) -> Work[tuple[Any, Any]]:
        torch.manual_seed(3)
        return (yield from super().train(ctx, params, client_state))


class DrawsFromGlobalState(Plain):
    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Any) -> Work[tuple[Any, Any]]:
        reply, state = yield from super().train(ctx, params, client_state)
        return Weighted(reply.value * float(np.random.rand()), reply.weight), state


class CountsInItsClass(Plain):
    calls: ClassVar[list[int]] = []

    def round(self, state: Any, rnd: Round) -> Script[Any]:
        self.calls.append(1)
        after = yield from super().round(state, rnd)
        return PlainState(after.params * (1 + 0.001 * len(self.calls)))


class DependsOnTheOrderOfTheCohort(Plain):
    def round(self, state: Any, rnd: Round) -> Script[Any]:
        mean = yield from total(self.train, to_all(rnd.cohort[:1], state.params))
        return PlainState(state.params + mean.value)


class ChangesItsPayload(Plain):
    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Any) -> Work[tuple[Any, Any]]:
        result = yield from ctx.fit(params, self.solver)
        update = result.params - params
        params.flat.add_(0.001)
        return Weighted(update, 1.0), None


class ChangesItsClientState(Plain):
    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Any) -> Work[tuple[Any, Any]]:
        reply, _ = yield from super().train(ctx, params, client_state)
        kept = params.zeros_like() if client_state is None else client_state
        kept.flat.add_(1)
        return reply, kept


class ReadsSingleReplies(Plain):
    """Says that it reads sums, and collects every reply."""

    def round(self, state: Any, rnd: Round) -> Script[Any]:
        class Collector:
            def __init__(self) -> None:
                self.replies: list[Weighted] = []

            def add(self, client: ClientId, reply: Weighted) -> None:
                self.replies.append(reply)

            def value(self) -> list[Weighted]:
                return self.replies

        replies = yield Exchange(
            find_client_method(self.train).address, to_all(rnd.cohort, state.params), "sum", Collector
        )
        flats = torch.stack([reply.value.flat for reply in replies])
        return PlainState(Params(state.params.layout, state.params.flat + flats.sort(0).values.mean(0)))


class UnderstatesItsBytes(Plain):
    def dummy_exchanges(self, state: Any, rnd: Round) -> list[DummyExchange]:
        return super().dummy_exchanges(state, rnd)[:0]


class HasAStateThatIsNoMessage(Plain):
    def init(self, start: InitialModels) -> Any:
        return type("Unregistered", (), {"params": start.shared})()

    def round(self, state: Any, rnd: Round) -> Script[Any]:
        after = yield from super().round(state, rnd)
        return type("Unregistered", (), {"params": after.params})()


class KeepsAClientStateThatIsNoMessage(Plain):
    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Any) -> Work[tuple[Any, Any]]:
        reply, _ = yield from super().train(ctx, params, client_state)
        return reply, {1, 2, 3}


class RepliesWithoutAWeight(Plain):
    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Any) -> Work[tuple[Any, Any]]:
        reply, state = yield from super().train(ctx, params, client_state)
        return reply.value, state


class NeedsAClientState(Plain):
    def assemble(self, ctx: Context, view: Any, client_state: Any) -> Params:
        if client_state is None:
            raise KeyError("no state")
        return super().assemble(ctx, view, client_state)


class DividesByTheNumberOfSteps(Plain):
    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Any) -> Work[tuple[Any, Any]]:
        after = yield from ctx.fit(params, self.solver)
        return Weighted((after.params - params) * (1 / after.steps), 1.0), None


class WeighsAllClientsEqually(Plain):
    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Any) -> Work[tuple[Any, Any]]:
        reply, state = yield from super().train(ctx, params, client_state)
        return Weighted(reply.value, 1.0), state


class DeploysSomeLayersOnly(Plain):
    def assemble(self, ctx: Context, view: Any, client_state: Any) -> Params:
        params: Params = view
        return params.restrict(params.layout.select([0, 1]))


class DeploysPersonalModelsInSecret(Plain):
    def assemble(self, ctx: Context, view: Any, client_state: Any) -> Params:
        params: Params = view
        return params * (1 + 1e-3 * len(ctx.client) + 1e-3 * ord(ctx.client[-1]))


class ClimbsUphill(Plain):
    @work(reveals="sum")
    def train(self, ctx: Context, params: Params, client_state: Any) -> Work[tuple[Any, Any]]:
        reply, state = yield from super().train(ctx, params, client_state)
        return Weighted(-2.0 * reply.value, reply.weight), state


BROKEN: list[tuple[type[Plain], str]] = [
    (SeedsGlobalState, "seeds or draws from a global random generator"),
    (DrawsFromGlobalState, "seeds or draws from a global random generator"),
    (CountsInItsClass, "two runs with the same seed give different states"),
    (DependsOnTheOrderOfTheCohort, "depends on the order of the cohort"),
    (ChangesItsPayload, "changes its payload in place"),
    (ChangesItsClientState, "changes its client state in place"),
    (ReadsSingleReplies, "fails if its sums are hidden|more than sums"),
    (UnderstatesItsBytes, r"would estimate 0 bytes up and 0 down"),
    (HasAStateThatIsNoMessage, "Unregistered may not be sent or stored"),
    (KeepsAClientStateThatIsNoMessage, "set may not be sent or stored"),
    (RepliesWithoutAWeight, "weight|Weighted"),
    (NeedsAClientState, "cannot deploy a model.*client_state=None"),
    (DividesByTheNumberOfSteps, "fails if a client has no examples .*ZeroDivisionError"),
    (WeighsAllClientsEqually, "a client without examples changes what other clients learn"),
    (DeploysSomeLayersOnly, "assemble returns another model"),
    (DeploysPersonalModelsInSecret, "does not declare personal"),
    (ClimbsUphill, "the training loss does not fall"),
]


@pytest.mark.parametrize(("broken", "sentence"), BROKEN, ids=[broken.__name__ for broken, _ in BROKEN])
def test_each_broken_algorithm_fails_with_a_sentence(broken: type[Plain], sentence: str, small: Federation) -> None:
    def create(solver: Solver = Solver()) -> Plain:
        """An algorithm that breaks one rule."""
        return broken(solver)

    with pytest.raises(AssertionError, match=rf"plain: .*({sentence})"):
        check_algorithm(create, federation=small, solver=ONE_STEP)


@pytest.mark.parametrize(
    ("create", "options"),
    [(plain, {}), (scaffold, {}), (fedrep, {"head_epochs": 1})],
    ids=["plain", "scaffold", "fedrep"],
)
def test_algorithms_that_keep_the_contract_pass(
    create: Callable[..., Algorithm], options: dict[str, Any], small: Federation
) -> None:
    check_algorithm(create, federation=small, solver=ONE_STEP, **options)


def test_a_function_that_a_recipe_cannot_call_fails(small: Federation) -> None:
    with pytest.raises(AssertionError, match="has no parameter 'solver' with a default"):
        check_algorithm(lambda mu=1.0: fedavg(), federation=small)
    with pytest.raises(AssertionError, match="does not inherit from Algorithm"):
        check_algorithm(lambda solver=Solver(): "text", federation=small)  # type: ignore[arg-type, return-value]
    with pytest.raises(AssertionError, match="has no docstring"):
        check_algorithm(lambda solver=Solver(): Plain(solver), federation=small)


# ---- other components -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("create", [float16, int8, top_k])
def test_codecs_of_motet_pass(create: Callable[..., Codec]) -> None:
    check_codec(create)


@dataclass(frozen=True)
class Halving(Codec):
    """Drops the second half of a vector, and promises too much."""

    name: str = "halving"
    error: float = 1e9
    size: int = 2

    def encode(self, body: Tensor, rows: RowLayout, seed: Seed) -> tuple[Tensor, Tensor | None]:
        return body[: len(body) // 2].clone(), None

    def decode(self, body: Tensor, side_info: Tensor | None, rows: RowLayout) -> Tensor:
        return torch.cat([body, torch.zeros(rows.size - len(body))])

    def encoded_size(self, rows: RowLayout) -> EncodedSize:
        return EncodedSize(4 * (rows.size // self.size), 0)

    def error_bound(self, body: Tensor, rows: RowLayout) -> float:
        return self.error


def test_codecs_that_promise_too_much_fail() -> None:
    with pytest.raises(AssertionError, match="encoded_size promises"):
        check_codec(lambda: Halving(size=4))
    with pytest.raises(AssertionError, match="and error_bound promises 0"):
        check_codec(lambda: Halving(error=0.0))


def test_tasks_are_checked() -> None:
    corpus = toy_classification(train=32, test=16, authors=4)
    check_task(classification, corpus)

    @dataclass(frozen=True)
    class Incomplete(Classification):
        def compute_metrics(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
            return {"loss": 1.0}

    def incomplete(corpus: Corpus) -> Incomplete:
        base = classification(corpus)
        return Incomplete(**{f.name: getattr(base, f.name) for f in dataclasses.fields(base)})

    incomplete.__annotations__["return"] = Incomplete
    with pytest.raises(AssertionError, match=r"compute_metrics lacks \['accuracy'"):
        check_task(incomplete, corpus)


def test_datasets_are_checked() -> None:
    check_dataset(toy_regression)
    sizes = iter([20, 21])
    with pytest.raises(AssertionError, match="two calls return different corpora"):
        check_dataset(lambda: toy_classification(train=next(sizes), test=10))
    with pytest.raises(AssertionError, match="returned a str"):
        check_dataset(lambda: "text")  # type: ignore[arg-type, return-value]


def test_partitions_are_checked() -> None:
    check_partition(uniform, clients=3)

    def overlapping(corpus: Corpus, seed: Seed) -> Partition:
        rows = np.arange(corpus.num_train)
        good = uniform(corpus, seed, clients=2)
        return dataclasses.replace(good, train=ClientRows.from_lists([rows, rows]))

    with pytest.raises(AssertionError, match="several clients"):
        check_partition(overlapping)


def test_trackers_are_checked() -> None:
    @dataclass
    class Silent:
        def log(self, round: int, values: Mapping[str, float]) -> None: ...

        def close(self) -> None: ...

    def open_silent(name: str, folder: Path, settings: Mapping[str, Any]) -> Silent:
        return Silent()

    check_tracker(open_silent)
    with pytest.raises(AssertionError, match="the tracker has no method log"):
        check_tracker(lambda name, folder, settings: object())  # type: ignore[arg-type, return-value]
