"""The contract of `Algorithm`, checked for every algorithm in the table. A new algorithm is tested automatically."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from tests.entries import SOLVER, make_algorithm
from tests.runs import advance, make_round, run_round, run_rounds, start_run

from motet.algorithms import ALGORITHMS, fedavg, fedopt, fedprox, isolated
from motet.algorithms.fedavg import FedAvg
from motet.core.errors import PrivacyError
from motet.core.layers import Layers
from motet.core.program import Algorithm
from motet.core.script import Exchange, Program, Script, all_client_methods, gather, rewrite_sums, run_script, work
from motet.core.weighted import RunningSum, Weighted
from motet.core.work import Work
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.solver import Solver
from motet.optim import SGD
from motet.testing.algorithm_checks import Case, check_client_without_examples
from motet.transport.client_runtime import ClientRuntime
from motet.transport.requests import Reply, Request
from motet.transport.traffic import Traffic
from motet.wire import deserialize, serialize

# With 24 training examples, a client needs a weak proximal term and little distillation from the 16 public texts.
GENTLE_OPTIONS: dict[str, dict[str, Any]] = {
    "fedprox": {"mu": 0.01},
    **{name: {"distill_epochs": 1, "distill_lr": 0.005} for name in ("adafd", "fedavg_logits", "dsfl", "mhat")},
}
READS_REPLIES = {
    *("adafd", "fedavg_logits", "dsfl", "mhat", "fedkd"),  # exchange=sum reads sums
    *("atc", "percfl", "spfl_like", "fedex_lora", "flexlora", "flora", "hetlora"),
}
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


class Reference(NamedTuple):
    """Two rounds of an algorithm, which other runs with the same seed must repeat: states and traffic."""

    first: bytes
    second: bytes
    traffic: Traffic


@cache
def run_reference(name: str, federation: Federation) -> Reference:
    run = start_run(federation, make_algorithm(name))
    first, second = (serialize(advance(run).state) for _ in range(2))
    return Reference(first, second, run.engine.progress.traffic)


@every_algorithm
def test_the_order_of_the_cohort_does_not_matter(name: str, federation: Federation) -> None:
    run = start_run(federation, make_algorithm(name))
    assert serialize(run_round(run, cohort=tuple(federation.clients)[::-1])) == run_reference(name, federation).first


@every_algorithm
def test_a_client_without_examples_does_no_harm(name: str, federation: Federation) -> None:
    check_client_without_examples(Case(lambda: make_algorithm(name), federation))


class SerializingTransport:
    """Serializes every message, and returns the replies in reverse order."""

    def __init__(self, host: ClientRuntime) -> None:
        self.host, self.requests = host, list[bytes]()

    def send(self, request: Request) -> None:
        self.requests.append(serialize(request))

    def receive(self, timeout: float) -> Reply | None:
        if not self.requests:
            return None
        request = deserialize(self.requests.pop())
        reply: Reply = deserialize(serialize(next(self.host.answer_requests(iter([request])))))
        return reply

    def close(self) -> None: ...


@every_algorithm
def test_the_same_seed_gives_the_same_state_also_with_serialized_messages(name: str, federation: Federation) -> None:
    run = run_rounds(federation, make_algorithm(name), connect=SerializingTransport)
    reference = run_reference(name, federation)
    assert serialize(run.state) == reference.second
    assert run.engine.progress.traffic == reference.traffic


@every_algorithm
def test_a_run_continues_from_a_stored_state(name: str, federation: Federation) -> None:
    running = start_run(federation, make_algorithm(name))
    for _ in range(2):
        running.engine.restore(deserialize(serialize(running.engine.progress)))
        running.engine.run_round()
    assert serialize(running.state) == run_reference(name, federation).second


@every_algorithm
def test_clients_without_state_can_be_evaluated(name: str, federation: Federation) -> None:
    running = run_rounds(federation, make_algorithm(name), 1)
    running.storage.client_states.restore({})
    reports = running.evaluator.evaluate_clients().scores
    assert set(reports) == set(federation.clients)
    assert all(0 <= scores["accuracy"] <= 1 for scores in reports.values())


@every_algorithm
def test_a_round_does_not_modify_its_inputs(name: str, federation: Federation) -> None:
    initial = federation.model.initial_params.flat.clone()
    running = run_rounds(federation, make_algorithm(name), 1)
    state = serialize(running.state)
    run_round(running, 1)
    assert serialize(running.state) == state
    assert torch.equal(federation.model.initial_params.flat, initial)


@every_algorithm
def test_the_training_loss_decreases(name: str, federation: Federation) -> None:
    options = GENTLE_OPTIONS.get(name, {})
    run = start_run(federation, make_algorithm(name, solver=replace(SOLVER, lr=0.02), **options), 3)
    before = mean_training_loss(run)
    for _ in range(3):
        advance(run)
    assert mean_training_loss(run) < 0.95 * before


def mean_training_loss(running: FederatedRun) -> float:
    """Return the mean loss of the clients' deployed models on their own training data."""
    script = running.evaluator.program.evaluate_each(running.state, tuple(running.plan.federation.clients), "train")
    reports = run_script(script, running.engine.evaluation_mailbox.run_exchange, running.engine.executor.run)
    return sum(scores["loss"] for scores in reports.values()) / len(reports)


# ---- sums whose terms are hidden -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class WrappedSum(Program):
    """Stands in for secure aggregation: runs the algorithm's client method inside a method of another program."""

    name: str = "wrapped"

    def __call__(self, exchange: Exchange) -> Script[Weighted]:
        calls = {client: (exchange.address, payload) for client, payload in exchange.payloads.items()}
        replies = yield from gather(self.call, calls)
        total = RunningSum()
        for client, reply in replies.items():
            total.add(client, reply)
        return total.value()

    @work(reveals="each")
    def call(self, ctx: Any, call: tuple[str, Any], client_state: None) -> Work[tuple[Weighted, None]]:
        reply = yield from ctx.invoke(*call)
        return reply, None


def test_the_server_reads_single_replies_of_these_algorithms_only() -> None:
    """All others can be used with secure sums."""
    assert {n for n in ALGORITHMS if "each" in all_client_methods(make_algorithm(n)).values()} == READS_REPLIES


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in READS_REPLIES])
def test_sums_can_be_rewritten(name: str, federation: Federation) -> None:
    algorithm = make_algorithm(name)
    running = start_run(federation, algorithm)
    wrapped = WrappedSum()
    running.engine.runtime.programs[wrapped.name] = wrapped
    script = rewrite_sums(wrapped, algorithm.round(running.state, make_round(federation)))
    state = run_script(script, running.engine.mailbox.run_exchange, running.engine.executor.run)
    assert serialize(state) == run_reference(name, federation).first


def test_a_method_that_reveals_only_sums_cannot_be_gathered() -> None:
    with pytest.raises(PrivacyError, match="reveals only sums"):
        next(gather(fedavg().train, {}))


# ---- special cases of FedAvg ----------------------------------------------------------------------------------------


def train(federation: Federation, algorithm: Algorithm) -> torch.Tensor:
    """Return the global parameters after two rounds."""
    flat: torch.Tensor = run_rounds(federation, algorithm).state.params.flat
    return flat


def test_fedprox_with_mu_zero_is_fedavg(federation: Federation) -> None:
    assert torch.equal(train(federation, fedprox(SOLVER, mu=0.0)), train(federation, fedavg(SOLVER)))


def test_the_proximal_term_reduces_the_update(federation: Federation) -> None:
    initial = federation.model.initial_params.flat
    sgd = Solver(optimizer="sgd", lr=0.2, batch=8, epochs=3, schedule="constant")
    free, proximal = (train(federation, a) - initial for a in (fedavg(sgd), fedprox(sgd, mu=1.0)))
    assert proximal.norm() < 0.9 * free.norm()


def test_fedopt_without_momentum_is_fedavg(federation: Federation) -> None:
    assert torch.equal(train(federation, fedopt(SOLVER, server=SGD())), train(federation, fedavg(SOLVER)))


def test_fedavg_without_shared_layers_is_isolated(federation: Federation) -> None:
    expected, running = (run_rounds(federation, a) for a in (isolated(SOLVER), FedAvg(SOLVER, shared=Layers.none())))
    for client in federation.clients:
        state, other = (
            expected.storage.client_states.get("isolated", client),
            running.storage.client_states.get("fedavg", client),
        )
        assert torch.equal(state.flat, other.flat)
    assert expected.engine.mailbox.traffic.payload_up == expected.engine.mailbox.traffic.payload_down == 0


def test_isolated_clients_do_not_influence_each_other(federation: Federation) -> None:
    together = run_rounds(federation, isolated(SOLVER))
    client = federation.clients[1]
    alone = start_run(federation, isolated(SOLVER))
    for index in range(2):
        advance(alone, index, cohort=[client])
    assert torch.equal(
        alone.storage.client_states.get("isolated", client).flat,
        together.storage.client_states.get("isolated", client).flat,
    )


@pytest.mark.parametrize("weighting", ["examples", "batches", "processed", "uniform"])
def test_replies_are_weighted_as_configured(weighting: Any, federation: Federation) -> None:
    sizes = dict(zip(federation.clients, federation.partition.train.sizes.tolist(), strict=True))
    running = start_run(federation, fedavg(replace(SOLVER, epochs=2), weighting=weighting), rounds=1)
    requests = [Request(i, client, 0, "fedavg.train", running.state.params) for i, client in enumerate(sizes)]
    weights = {reply.client: reply.value.weight for reply in running.engine.runtime.answer_requests(iter(requests))}
    expected = {
        "examples": sizes,
        "batches": {client: 2 * -(-size // 8) for client, size in sizes.items()},
        "processed": {client: 2 * size for client, size in sizes.items()},
        "uniform": dict.fromkeys(sizes, 1),
    }
    assert weights == expected[weighting]
