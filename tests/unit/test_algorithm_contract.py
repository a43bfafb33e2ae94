"""What an algorithm may declare, the defaults of what it does not, and the errors for what it forgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.runs import make_plan, run_rounds

from motet.algorithms import ALGORITHMS
from motet.core.errors import ConfigError, MotetError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.program import Algorithm, InitialModels, Round
from motet.core.script import ClientId, Script, all_client_methods, gather, to_all, total, work
from motet.core.weighted import Weighted
from motet.experiment.build.component_builders import build_algorithm, resolve_defaults
from motet.experiment.build.federation import Federation
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.solver import Solver


@dataclass(frozen=True)
class Minimal(Algorithm):
    """The least that an algorithm must have. Its clients reply without training."""

    solver: Solver = Solver()
    name: str = "minimal"

    def init(self, start: InitialModels) -> Params:
        return start.shared

    def round(self, state: Params, rnd: Round) -> Script[Params]:
        mean = yield from total(self.reply, to_all(rnd.cohort, state))
        return mean.value

    @work(reveals="sum")
    def reply(self, ctx: Any, params: Params, client_state: None) -> tuple[Weighted, None]:
        return Weighted(params, 1.0), None

    def view(self, state: Params, client: ClientId) -> Params:
        return state

    def assemble(self, ctx: Any, view: Params, client_state: None) -> Params:
        return view


def minimal(solver: Solver = Solver()) -> Minimal:
    return Minimal(solver)


@dataclass(frozen=True)
class WithFields(Minimal):
    frozen: Layers = Layers.parse("embeddings")
    personal: bool = True

    @property
    def sends_weights_first(self) -> bool:
        return True


class Nameless(Algorithm):
    """Does nothing, and has no name."""

    def init(self, start: InitialModels) -> None: ...
    def round(self, state: None, rnd: Round) -> Script[None]:
        yield from gather(self.unmarked, {})

    def unmarked(self) -> None: ...
    def view(self, state: None, client: ClientId) -> None: ...
    def assemble(self, ctx: Any, view: None, client_state: None) -> None: ...


@dataclass(frozen=True)
class RequiresName(Nameless):
    name: str
    personal: bool


def test_an_algorithm_has_defaults_for_everything_it_does_not_declare() -> None:
    algorithm = Minimal()
    assert (algorithm.personal, algorithm.ephemeral, algorithm.sends_weights_first) == (False, False, False)
    assert algorithm.frozen == Layers.none()
    assert algorithm.subprograms == ()
    assert all_client_methods(algorithm) == {"minimal.reply": "sum"}


def test_fields_and_properties_replace_defaults() -> None:
    algorithm = WithFields()
    assert algorithm.personal
    assert algorithm.frozen == Layers.parse("embeddings")
    assert algorithm.sends_weights_first


def test_a_field_without_a_default_stays_required() -> None:
    assert RequiresName("mine", personal=True).personal
    with pytest.raises(TypeError, match="missing 2 required positional arguments: 'name' and 'personal'"):
        RequiresName()  # type: ignore[call-arg]


def test_an_algorithm_without_a_name_is_an_error() -> None:
    with pytest.raises(ConfigError, match="Nameless has no name; add it to the class"):
        _ = Nameless().name


def test_an_algorithm_without_a_required_method_cannot_be_created() -> None:
    class Incomplete(Algorithm):
        name = "incomplete"

    with pytest.raises(TypeError, match=r"abstract methods .?assemble.?, .?init.?, .?round.?, .?view"):
        Incomplete()  # type: ignore[abstract]


def test_a_method_that_is_not_marked_cannot_be_called_on_clients() -> None:
    algorithm = RequiresName("mine", personal=True)
    for read in (gather, total):
        with pytest.raises(ConfigError, match=r"Nameless\.unmarked is not marked as a client method; put @work"):
            next(read(algorithm.unmarked, {}))


def test_an_algorithm_must_inherit_the_contract(federation: Federation) -> None:
    class Unrelated:
        name = "unrelated"

    with pytest.raises(ConfigError, match="the algorithm is a Unrelated, which does not inherit from Algorithm"):
        make_plan(federation, Unrelated())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda shared="all": Minimal(), "has no parameter 'solver' with a default"),
        (lambda solver, mu=1.0: Minimal(solver), "has no parameter 'solver' with a default"),
        (lambda solver=Solver(): "minimal", "is a str, which does not inherit from Algorithm"),
        (lambda mu, solver=Solver(): Minimal(solver), "option 'mu' is missing; it has no default"),
        (lambda solver=Solver(): Algorithm(), "abstract methods .?assemble.?, .?init.?, .?round.?, .?view.?; add them"),  # type: ignore[abstract]
    ],
)
def test_an_algorithm_that_a_recipe_cannot_build_is_an_error(
    function: Callable[..., Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ALGORITHMS, "mine", function)
    with pytest.raises(ConfigError, match=message) as error:
        build_algorithm(RunConfig.from_settings("r", {"algorithm": "mine"}))
    assert "mine" in str(error.value)


def test_a_recipe_can_use_an_algorithm_that_keeps_no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "mine", minimal)
    config = resolve_defaults(RunConfig.from_settings("r", {"algorithm": "mine", "solver": {"batch": 4}}))
    assert config.solver["batch"] == 4
    assert config.model.freeze == ()


def test_a_minimal_algorithm_runs(federation: Federation) -> None:
    run = run_rounds(federation, Minimal(), 1)
    assert run.state.layout == federation.model.layout


class RepliesWithoutAState(Minimal):
    @work(reveals="sum")
    def reply(self, ctx: Any, params: Params, client_state: None) -> Any:
        return Weighted(params, 1.0)


class RepliesWithAMapping(Minimal):
    @work(reveals="sum")
    def reply(self, ctx: Any, params: Params, client_state: None) -> Any:
        return Weighted({"model": params}, 1.0), None  # type: ignore[arg-type]


class ReturnsNoState(Minimal):
    def round(self, state: Params, rnd: Round) -> Any:
        yield from total(self.reply, to_all(rnd.cohort, state))


class ExchangesNothing(Minimal):
    def round(self, state: Params, rnd: Round) -> Any:
        return state


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        (RepliesWithoutAState, r"minimal\.reply returned a Weighted; expected the reply and the new client state"),
        (RepliesWithAMapping, r"the reply is a Weighted dict; expected Params\. Params\.bundle"),
        (ReturnsNoState, "minimal: round returned no state"),
        (ExchangesNothing, "minimal: round returned a Params; expected a generator"),
    ],
)
def test_an_algorithm_that_returns_something_else_gets_a_sentence(
    algorithm: type[Minimal], sentence: str, federation: Federation
) -> None:
    with pytest.raises(MotetError, match=sentence):
        run_rounds(federation, algorithm(), 1)


@dataclass(frozen=True)
class ForgetsInRound(Minimal):
    def round(self, state: Params, rnd: Round) -> Any:
        return total(self.reply, to_all(rnd.cohort, state)).value  # type: ignore[attr-defined]


@dataclass(frozen=True)
class YieldsTotal(Minimal):
    def round(self, state: Params, rnd: Round) -> Any:
        mean = yield total(self.reply, to_all(rnd.cohort, state))
        return mean.value


@dataclass(frozen=True)
class ForgetsInClient(Minimal):
    @work(reveals="sum")
    def reply(self, ctx: Any, params: Params, client_state: None) -> tuple[Weighted, None]:
        return Weighted(ctx.fit(params, self.solver).params, 1.0), None


@dataclass(frozen=True)
class YieldsFit(Minimal):
    @work(reveals="sum")
    def reply(self, ctx: Any, params: Params, client_state: None) -> Any:
        after = yield ctx.fit(params, self.solver)
        return Weighted(after.params, 1.0), None


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (ForgetsInRound, "ForgetsInRound.round"),
        (YieldsTotal, "YieldsTotal.round"),
        (ForgetsInClient, "ForgetsInClient.reply"),
        (YieldsFit, "YieldsFit.reply"),
    ],
)
def test_a_forgotten_yield_from_is_explained(kind: type[Minimal], method: str, federation: Federation) -> None:
    with pytest.raises(
        ConfigError, match=rf"{method} \(test_algorithm_contract.py, line \d+\).*Write 'yield from' before"
    ):
        run_rounds(federation, kind(), 1)
