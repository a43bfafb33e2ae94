"""What holds for every algorithm in the table. A new entry is tested by being there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from tests.entries import SOLVER, made
from tests.runs import make_plan

from motet.algorithms import ALGORITHMS, fedavg, fedopt, fedprox, isolated
from motet.algorithms.fedavg import FedAvg
from motet.core.errors import PrivacyError
from motet.core.layers import Layers
from motet.core.program import Algorithm, Round
from motet.core.script import Exchange, Script, all_client_methods, gather, rewrite_sums, run_script, work
from motet.core.weighted import RunningSum, Weighted
from motet.core.work import Work
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.optim import Apply
from motet.report.progress import SilentProgress
from motet.transport.client_runtime import ClientRuntime
from motet.transport.client_state import ClientStates
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Reply, Request
from motet.wire import deserialize, serialize

# A client of 24 texts is held back by a strong pull, or by much distillation of what a server learnt from 16 texts.
GENTLE: dict[str, dict[str, Any]] = {
    "fedprox": {"mu": 0.01},
    **{name: {"distil_epochs": 1, "distil_lr": 0.005} for name in ("adafd", "fedavg_logits", "dsfl", "mhat")},
}
RunRounds = Callable[..., FederatedRun]
every = pytest.mark.parametrize("name", ALGORITHMS)


@every
def test_the_same_seed_gives_the_same_state(name: str, federation: Federation, rounds: RunRounds) -> None:
    first, second = (rounds(federation, made(name)) for _ in range(2))
    assert serialize(first.state) == serialize(second.state)


@every
def test_the_order_of_the_cohort_does_not_matter(name: str, federation: Federation) -> None:
    states = []
    for step in (1, -1):
        running = FederatedRun(
            make_plan(federation, made(name), 1), SerialExecutor(torch.device("cpu")), None, SilentProgress()
        )
        cohort = tuple(federation.clients)[::step]
        rnd = Round(0, 1, cohort, federation.seed.derive("round", 0), federation.server_context(0))
        states.append(
            run_script(
                running.plan.algorithm.round(running.state, rnd), running.mailbox.run_exchange, running.executor.run
            )
        )
    assert serialize(states[0]) == serialize(states[1])


class ByBytes:
    """In process, but every message is made into bytes and read from them, and replies come back in the wrong order."""

    def __init__(self, host: ClientRuntime) -> None:
        self.host, self.sent = host, list[bytes]()

    def send(self, request: Request) -> None:
        self.sent.append(serialize(request))

    def receive(self, timeout: float) -> Reply | None:
        if not self.sent:
            return None
        request = deserialize(self.sent.pop())
        reply: Reply = deserialize(serialize(next(self.host.answer_requests(iter([request])))))
        return reply

    def close(self) -> None: ...


@every
def test_everything_survives_the_wire(name: str, federation: Federation, rounds: RunRounds) -> None:
    plain = rounds(federation, made(name))
    algorithm = made(name)
    running = FederatedRun(
        make_plan(federation, algorithm, 2), SerialExecutor(torch.device("cpu")), None, SilentProgress()
    )
    mailbox = Mailbox(ByBytes(running.host))
    for index in range(2):
        cohort = tuple(federation.clients)
        rnd = Round(index, 2, cohort, federation.seed.derive("round", index), federation.server_context(index))
        mailbox.round = index
        running.state = run_script(algorithm.round(running.state, rnd), mailbox.run_exchange, running.executor.run)
    assert serialize(running.state) == serialize(plain.state)
    assert mailbox.traffic == plain.mailbox.traffic


@every
def test_a_state_that_was_stored_goes_on_as_if_it_had_not_been(
    name: str, federation: Federation, rounds: RunRounds
) -> None:
    whole = rounds(federation, made(name), 3)
    algorithm = made(name)
    running = FederatedRun(
        make_plan(federation, algorithm, 3), SerialExecutor(torch.device("cpu")), None, SilentProgress()
    )
    for index in range(3):
        rnd = Round(
            index,
            3,
            tuple(federation.clients),
            federation.seed.derive("round", index),
            federation.server_context(index),
        )
        running.mailbox.round = index
        state = run_script(
            algorithm.round(deserialize(serialize(running.state)), rnd),
            running.mailbox.run_exchange,
            running.executor.run,
        )
        running.state = state
    assert serialize(running.state) == serialize(whole.state)


@every
def test_a_client_that_never_took_part_can_be_judged(name: str, federation: Federation, rounds: RunRounds) -> None:
    running = rounds(federation, made(name), 1)
    running.memories = running.host.memories = ClientStates()
    reports = running.look_at_clients()
    assert set(reports) == set(federation.clients)
    assert all(0 <= r["accuracy"] <= 1 for r in reports.values())


@every
def test_nothing_passed_in_is_changed(name: str, federation: Federation, rounds: RunRounds) -> None:
    fresh = federation.model.initial_params.flat.clone()
    running = rounds(federation, made(name), 1)
    before = serialize(running.state)
    rnd = Round(1, 2, tuple(federation.clients), federation.seed.derive("round", 1), federation.server_context(1))
    run_script(running.plan.algorithm.round(running.state, rnd), running.mailbox.run_exchange, running.executor.run)
    assert serialize(running.state) == before
    assert torch.equal(federation.model.initial_params.flat, fresh)


@every
def test_the_loss_falls_on_a_problem_any_method_solves(name: str, federation: Federation, rounds: RunRounds) -> None:
    algorithm = made(name, solver=replace(SOLVER, epochs=3, lr=0.02), **GENTLE.get(name, {}))
    before = _own_loss(rounds(federation, algorithm, 0))
    assert _own_loss(rounds(federation, algorithm, 6)) < 0.9 * before


def _own_loss(running: FederatedRun) -> float:
    """What the clients' deployed models lose on the texts they were trained on."""
    asked = running.judge.evaluate_each(running.state, tuple(running.plan.federation.clients), "train")
    reports = run_script(asked, running.survey.run_exchange, running.executor.run)
    return sum(r["loss"] for r in reports.values()) / len(reports)


# ---- sums that may not be read singly ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Veiled:
    """A stand-in for secure aggregation: the algorithm's own method is performed inside another program's exchange."""

    name: str = "veiled"

    def __call__(self, exchange: Exchange) -> Script[Weighted]:
        asks = {c: (exchange.address, p) for c, p in exchange.payloads.items()}
        replies = yield from gather(self.hidden, asks)
        total = RunningSum()
        for client, reply in replies.items():
            total.add(client, reply)
        return total.value()

    @work(reveals="each")
    def hidden(self, ctx: Any, ask: tuple[str, Any], memory: None) -> Work[tuple[Weighted, None]]:
        reply = yield from ctx.invoke(*ask)
        return reply, None


@every
def test_sums_can_be_rewritten_without_the_algorithm_knowing(
    name: str, federation: Federation, rounds: RunRounds
) -> None:
    algorithm = made(name)
    if "each" in all_client_methods(algorithm).values():
        pytest.skip("reads single replies, and is refused under secure sums")
    plain = rounds(federation, algorithm, 1)
    running = FederatedRun(
        make_plan(federation, algorithm, 1), SerialExecutor(torch.device("cpu")), None, SilentProgress()
    )
    veil = Veiled()
    running.host.programs[veil.name] = veil
    rnd = Round(0, 1, tuple(federation.clients), federation.seed.derive("round", 0), federation.server_context(0))
    state = run_script(
        rewrite_sums(veil, algorithm.round(running.state, rnd)), running.mailbox.run_exchange, running.executor.run
    )
    assert serialize(state) == serialize(plain.state)


def test_a_method_that_reveals_sums_cannot_be_gathered() -> None:
    with pytest.raises(PrivacyError, match="reveals only sums"):
        next(gather(fedavg().train, {}))


# ---- named limits ---------------------------------------------------------------------------------------------------


def final(rounds: RunRounds, federation: Federation, algorithm: Algorithm) -> torch.Tensor:
    flat: torch.Tensor = rounds(federation, algorithm).state.params.flat
    return flat


def test_fedprox_without_a_pull_is_fedavg(federation: Federation, rounds: RunRounds) -> None:
    assert torch.equal(final(rounds, federation, fedprox(SOLVER, mu=0.0)), final(rounds, federation, fedavg(SOLVER)))


def test_fedprox_with_a_pull_stays_nearer(federation: Federation, rounds: RunRounds) -> None:
    fresh = federation.model.initial_params.flat
    sgd = Solver(optimizer="sgd", lr=0.2, batch=8, epochs=3, schedule="constant")
    free, held = (final(rounds, federation, a) - fresh for a in (fedavg(sgd), fedprox(sgd, mu=1.0)))
    assert held.norm() < 0.9 * free.norm()


def test_fedopt_that_applies_is_fedavg(federation: Federation, rounds: RunRounds) -> None:
    assert torch.equal(
        final(rounds, federation, fedopt(SOLVER, server=Apply())), final(rounds, federation, fedavg(SOLVER))
    )


def test_sharing_nothing_is_isolated(federation: Federation, rounds: RunRounds) -> None:
    alone, none = (rounds(federation, a) for a in (isolated(SOLVER), FedAvg(SOLVER, shared=Layers.none())))
    for client in federation.clients:
        own, other = alone.memories.get("isolated", client), none.memories.get("fedavg", client)
        assert torch.equal(own.flat, other.flat)
    assert alone.mailbox.traffic.payload_up == alone.mailbox.traffic.payload_down == 0


def test_isolated_clients_never_hear_of_each_other(federation: Federation, rounds: RunRounds) -> None:
    together = rounds(federation, isolated(SOLVER))
    running = FederatedRun(
        make_plan(federation, isolated(SOLVER), 2), SerialExecutor(torch.device("cpu")), None, SilentProgress()
    )
    one = federation.clients[1]
    for index in range(2):
        running.mailbox.round = index
        rnd = Round(index, 2, (one,), federation.seed, federation.server_context(index))
        running.state = run_script(
            running.plan.algorithm.round(running.state, rnd), running.mailbox.run_exchange, running.executor.run
        )
    assert torch.equal(running.memories.get("isolated", one).flat, together.memories.get("isolated", one).flat)


@pytest.mark.parametrize("weighting", ["examples", "batches", "processed", "uniform"])
def test_weights_are_what_they_are_called(weighting: Any, federation: Federation) -> None:
    sizes = dict(zip(federation.clients, federation.partition.train.sizes.tolist(), strict=True))
    solver = replace(SOLVER, epochs=2)
    algorithm = fedavg(solver, weighting=weighting)
    running = FederatedRun(
        make_plan(federation, algorithm, 1), SerialExecutor(torch.device("cpu")), None, SilentProgress()
    )
    requests = [Request(i, c, 0, "fedavg.train", running.state.params) for i, c in enumerate(sizes)]
    got = {r.client: r.value.weight for r in running.host.answer_requests(iter(requests))}
    want = {
        "examples": sizes,
        "batches": {c: 2 * -(-n // 8) for c, n in sizes.items()},
        "processed": {c: 2 * n for c, n in sizes.items()},
        "uniform": dict.fromkeys(sizes, 1),
    }
    assert got == want[weighting]
