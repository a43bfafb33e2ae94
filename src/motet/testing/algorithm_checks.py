"""The contract suite of algorithms."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from motet.core.attributes import require_parent
from motet.core.errors import MotetError, first_line
from motet.core.program import Algorithm, Round
from motet.core.rebased import split_base
from motet.core.script import Exchange, Program, Script, all_client_methods, gather, rewrite_sums, run_script, work
from motet.core.weighted import Weighted, mean_of
from motet.core.work import Work
from motet.experiment.build.federation import Federation
from motet.experiment.build.traffic_estimate import TrafficEstimate, estimate_traffic
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.config_parsing import list_parameters
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.solver import Solver
from motet.testing.small_federation import make_federation, run_rounds, start_run, without_examples
from motet.transport.client_runtime import ClientRuntime
from motet.transport.requests import Reply, Request
from motet.wire import deserialize, serialize

DEFAULT_SOLVER = Solver(optimizer="sgd", lr=0.1, batch=8, epochs=2)
PACKING_TOLERANCE = 1e-3  # of the size of the update; packed kernels add in another order
LEARNING_ROUNDS = 6


@dataclass(frozen=True)
class Case:
    """An algorithm under test. `create` returns a new one on every call."""

    create: Callable[[], Algorithm]
    federation: Federation
    name: str = field(default="")

    def run(self, rounds: int = 2, **options: Any) -> FederatedRun:
        return run_rounds(self.federation, self.create(), rounds, **options)

    @cached_property
    def reference(self) -> FederatedRun:
        """Two rounds without anything special, with which checks compare."""
        return self.run()


def check_algorithm(
    create: Callable[..., Algorithm],
    *,
    solver: Solver = DEFAULT_SOLVER,
    federation: Federation | None = None,
    learns: bool = True,
    **options: Any,
) -> None:
    """Check the contract of an algorithm, given the function that a recipe calls and its options.

    The algorithm runs a few rounds on a small federation (`make_federation`), or on yours. Set `learns` to False if it
    cannot reduce the training loss in six rounds.
    """
    _check_function(create)
    build = partial(create, solver=solver, **options)
    algorithm = build()
    require_contract(algorithm, create)
    case = Case(build, make_federation() if federation is None else federation, algorithm.name)
    checks = [*CHECKS, *([check_learning] if learns else [])]
    for check in checks:
        with _in_words(case.name):
            check(case)


def require(is_kept: bool, sentence: str) -> None:
    """Raise an AssertionError with a sentence, also if Python runs without assertions."""
    if not is_kept:
        raise AssertionError(sentence)


@contextmanager
def _in_words(name: str) -> Iterator[None]:
    """Turn errors of the algorithm into a broken contract, with the algorithm's name."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{name}: {error}") from error
    except MotetError as error:
        raise AssertionError(f"{name}: a round fails: {error}") from error


def _check_function(create: Callable[..., Algorithm]) -> None:
    parameter = list_parameters(create).get("solver")
    require(
        parameter is not None and isinstance(parameter.default, Solver),
        (
            "the function has no parameter 'solver' with a default, so a recipe cannot say how clients train; "
            "add: solver: Solver = Solver()"
        ),
    )


def require_contract(algorithm: Algorithm, create: Callable[..., Algorithm]) -> None:
    """Raise an AssertionError if a value does not declare what every algorithm must."""
    try:
        require_parent(algorithm, Algorithm, "the function's result")
        _ = algorithm.name
    except MotetError as error:
        raise AssertionError(str(error)) from error
    has_docstring = bool((create.__doc__ or "").strip())
    require(has_docstring, "the function has no docstring, so motet list has nothing to show; add one.")


def check_randomness(case: Case) -> None:
    """The same seed gives the same state, whatever the global random generators are."""
    saved = _read_generators()
    states = []
    try:
        for _ in range(2):
            _ = random.random(), np.random.rand(), torch.rand(1)  # another global state in the second run
            before = _read_generators()
            states.append(serialize(case.run().state))
            is_same = repr(before[:2]) == repr(_read_generators()[:2]) and torch.equal(before[2], torch.get_rng_state())
            require(is_same, "a round seeds or draws from a global random generator; draw from ctx.seed or rnd.seed.")
    finally:
        random.setstate(saved[0])
        np.random.set_state(saved[1])
        torch.set_rng_state(saved[2])
    require(
        states[0] == states[1],
        ("two runs with the same seed give different states; keep nothing outside of states, and draw from ctx.seed."),
    )


def _read_generators() -> tuple[Any, Any, torch.Tensor]:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def check_cohort_order(case: Case) -> None:
    clients = tuple(case.federation.clients)
    first, second = serialize(case.reference.state), serialize(case.run(cohort=clients[::-1]).state)
    require(first == second, "the state depends on the order of the cohort; treat all replies alike.")


class SerializingTransport:
    """Serializes every message, returns replies in reverse order, and checks that clients do not change requests."""

    def __init__(self, runtime: ClientRuntime) -> None:
        self.runtime, self.requests = runtime, list[bytes]()

    def send(self, request: Request) -> None:
        try:
            self.requests.append(serialize(request))
        except MotetError as error:
            raise AssertionError(f"a message to clients cannot be sent: {error}") from error

    def receive(self, timeout: float) -> Reply | None:
        if not self.requests:
            return None
        message = self.requests.pop()
        request = deserialize(message)
        reply = next(self.runtime.answer_requests(iter([request])))
        is_unchanged = serialize(request) == message
        require(is_unchanged, f"{request.address} changes its payload in place; compute new values.")
        try:
            decoded: Reply = deserialize(serialize(reply))
        except MotetError as error:
            raise AssertionError(f"a reply of {request.address} cannot be sent: {error}") from error
        return decoded

    def close(self) -> None: ...


def check_payloads(case: Case) -> None:
    """Clients do not change what they are sent, which other clients may share."""
    case.run(1, connect=SerializingTransport)


def check_messages(case: Case) -> None:
    """Messages and states survive serialization."""
    expected, run = case.reference, case.run(connect=SerializingTransport)
    try:
        states = serialize(expected.state), serialize(run.state)
        for client in case.federation.clients:
            serialize(run.storage.client_states.get(case.name, client))
    except MotetError as error:
        raise AssertionError(f"a state cannot be stored: {error}") from error
    require(states[0] == states[1], "the state changes if messages are serialized; put all that clients need in them.")
    is_same = run.engine.progress.traffic == expected.engine.progress.traffic
    require(is_same, "a message has another size after it was sent; let it hold only what its fields declare.")


def check_resumption(case: Case) -> None:
    run = start_run(case.federation, case.create(), 2)
    for _ in range(2):
        run.engine.restore(deserialize(serialize(run.engine.progress)))
        run.engine.run_round(tuple(case.federation.clients))
    is_same = serialize(run.state) == serialize(case.reference.state)
    require(is_same, "a run that continues from a stored state differs; keep everything in the state.")


def check_inputs(case: Case) -> None:
    """A round changes neither the server's state, nor client states, nor the initial model."""
    initial = case.federation.initial_models().shared
    initial_values = initial.flat.clone()
    run = case.run(1)
    state, stored = run.state, serialize(run.state)
    old = {c: run.storage.client_states.get(case.name, c) for c in case.federation.clients}
    old_values = {client: serialize(value) for client, value in old.items()}
    run.engine.run_round(tuple(case.federation.clients))
    require(serialize(state) == stored, "a round changes the server's state in place; return a new state.")
    changed = [client for client, value in old.items() if serialize(value) != old_values[client]]
    require(not changed, "a client method changes its client state in place; return a new one.")
    require(
        torch.equal(initial.flat, initial_values), "a round changes the initial model in place; compute new values."
    )


def check_new_clients(case: Case) -> None:
    """Clients that never took part can deploy a model, and sampling works."""
    clients = tuple(case.federation.clients)
    run = case.run(cohort=clients[: len(clients) // 2])
    layout = case.federation.model.layout
    for client in (*clients, None):
        try:
            params = split_base(run.model_for(client))[0]
        except Exception as error:
            who = "a new client" if client is None else "a client that never took part"
            message = f"{who} cannot deploy a model ({type(error).__name__}: {first_line(error)}); "
            raise AssertionError(f"{message}let assemble work with client_state=None.") from error
        if params.layout != layout:
            difference = params.layout.describe_difference(layout)
            raise AssertionError(
                f"assemble returns another model ({difference}); return all layers of the client's model."
            )


def check_client_without_examples(case: Case) -> None:
    """A client without examples does not change what the others learn."""
    federation = without_examples(case.federation)
    others = tuple(client for client in federation.clients if federation.participant(client).size)
    try:
        run = run_rounds(federation, case.create(), 1)
    except Exception as error:
        raise AssertionError(
            f"a round fails if a client has no examples ({type(error).__name__}: {first_line(error)}); if ctx.fit took 0 "
            "steps, let the reply have the weight 0."
        ) from error
    expected = run_rounds(federation, case.create(), 1, cohort=others)
    for client in others:
        params = split_base(expected.model_for(client))[0]
        difference = (split_base(run.model_for(client))[0] - params).norm()
        require(
            difference <= 1e-6 * params.norm(),
            "a client without examples changes what other clients learn; let its reply have the weight 0.",
        )


def check_personal(case: Case) -> None:
    """An algorithm whose clients deploy different models declares whether it also has a global model."""
    run = case.reference
    if any("personal" in vars(cls) for cls in type(run.plan.algorithm).__mro__ if cls is not Algorithm):
        return
    first, *others = [split_base(run.model_for(client))[0] for client in case.federation.clients]
    require(
        all(torch.equal(first.flat, other.flat) for other in others),
        (
            "clients deploy different models, and the class does not declare personal; write personal: bool = True, or "
            "personal: bool = False if there is also a global model, by which a run is judged."
        ),
    )


@dataclass(frozen=True)
class HiddenSum(Program):
    """Stands in for secure aggregation: runs the algorithm's client method inside a method of another program."""

    name: str = "hidden"

    def __call__(self, exchange: Exchange) -> Script[Weighted]:
        calls = {client: (exchange.address, payload) for client, payload in exchange.payloads.items()}
        replies = yield from gather(self.call, calls)
        return mean_of(replies.values())

    @work(reveals="each")
    def call(self, ctx: Any, call: tuple[str, Any], client_state: None) -> Work[tuple[Weighted, None]]:
        reply = yield from ctx.invoke(*call)
        if not isinstance(reply, Weighted):
            raise AssertionError(
                f"{call[0]} reveals sums, but replies with a {type(reply).__name__}; return a Weighted."
            )
        return reply, None


def check_sums(case: Case) -> None:
    """If clients reveal only sums, a secure sum can replace each exchange."""
    algorithm = case.create()
    if "each" in all_client_methods(algorithm).values():
        return
    expected, run, hidden = case.run(1), start_run(case.federation, algorithm, 1), HiddenSum()
    run.engine.runtime.programs[hidden.name] = hidden
    rnd = Round(
        index=0,
        rounds=1,
        cohort=tuple(case.federation.clients),
        seed=case.federation.seed.derive("round", 0),
        server=case.federation.server_context(0),
    )
    script = rewrite_sums(hidden, algorithm.round(run.state, rnd))
    try:
        state = run_script(script, run.engine.mailbox.run_exchange, run.engine.executor.run)
    except (AssertionError, MotetError):
        raise
    except Exception as error:
        raise AssertionError(
            f"the script fails if its sums are hidden ({type(error).__name__}: {first_line(error)}); read sums with "
            'total(), or declare @work(reveals="each").'
        ) from error
    is_same = serialize(state) == serialize(expected.state)
    require(is_same, 'the script reads more than sums; read with total(), or declare @work(reveals="each").')


def check_traffic(case: Case) -> None:
    """The bytes that `motet check` estimates are the bytes of each round."""
    run = start_run(case.federation, case.create(), 3)
    up = down = 0
    for index in range(3):
        estimate = estimate_traffic(run.plan, index)
        run.engine.run_round(tuple(case.federation.clients))
        traffic = run.engine.mailbox.traffic
        actual = TrafficEstimate(up=traffic.payload_up - up, down=traffic.payload_down - down)
        require(
            estimate == actual,
            (
                f"motet check would estimate {estimate.up} bytes up and {estimate.down} down for round {index + 1}, and "
                f"the round sends {actual.up} and {actual.down}; override dummy_exchanges."
            ),
        )
        up, down = traffic.payload_up, traffic.payload_down


def check_packing(case: Case) -> None:
    serial = case.reference
    packed = case.run(executor=PackedExecutor(torch.device("cpu"), width=8, use_bf16=False))
    initial = case.federation.initial_models().shared
    for client in case.federation.clients:
        params = split_base(serial.model_for(client))[0]
        size = (params - initial).norm() if params.layout == initial.layout else params.norm()
        difference = (params - split_base(packed.model_for(client))[0]).norm()
        require(
            difference <= PACKING_TOLERANCE * size + 1e-6,
            (
                f"clients that train together learn something else (by {difference / max(size, 1e-12):.1%} of the update); "
                "let objectives and readouts treat each row alike."
            ),
        )


def check_learning(case: Case) -> None:
    before, after = (_training_loss(case.run(rounds)) for rounds in (0, LEARNING_ROUNDS))
    require(
        after < before,
        (
            f"the training loss does not fall in {LEARNING_ROUNDS} rounds ({before:.3f} before, {after:.3f} after); "
            "pass another solver or options, or learns=False."
        ),
    )


def _training_loss(run: FederatedRun) -> float:
    clients = tuple(run.plan.federation.clients)
    reports = run.engine.run_evaluation(run.evaluator.program.evaluate_each(run.state, clients, "train"))
    return sum(scores["loss"] for scores in reports.values()) / len(reports)


CHECKS: list[Callable[[Case], None]] = [
    check_payloads,  # first: a payload that changes in place has odd effects in other checks
    check_randomness,
    check_cohort_order,
    check_messages,
    check_resumption,
    check_inputs,
    check_new_clients,
    check_personal,
    check_sums,
    check_client_without_examples,
    check_traffic,
    check_packing,
]
