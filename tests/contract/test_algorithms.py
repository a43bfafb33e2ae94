"""The contract of `Algorithm`, checked for every algorithm in the table. A new algorithm is tested automatically."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from tests.entries import SOLVER, make_algorithm
from tests.runs import advance, run_rounds, start_run

from motet.algorithms import ALGORITHMS, fedavg, fedopt, fedprox, isolated
from motet.algorithms.fedavg import FedAvg
from motet.core.errors import PrivacyError
from motet.core.layers import Layers
from motet.core.program import Algorithm
from motet.core.script import all_client_methods, gather, run_script
from motet.experiment.build.federation import Federation
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.solver import Solver
from motet.optim import SGD
from motet.testing.algorithm_checks import (
    Case,
    check_client_without_examples,
    check_cohort_order,
    check_inputs,
    check_messages,
    check_personal,
    check_resumption,
    check_sums,
)
from motet.transport.requests import Request

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


CHECKS = (
    check_cohort_order,
    check_messages,
    check_resumption,
    check_inputs,
    check_personal,
    check_sums,
    check_client_without_examples,
)  # of the suite for other packages; traffic and packing have tests with more variants


@cache
def make_case(name: str, federation: Federation) -> Case:
    """Make the case once, because its reference run serves all checks."""
    return Case(partial(make_algorithm, name), federation, make_algorithm(name).name)


@every_algorithm
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_algorithm_keeps_the_contract(name: str, check: Callable[[Case], None], federation: Federation) -> None:
    check(make_case(name, federation))


@every_algorithm
def test_clients_without_state_can_be_evaluated(name: str, federation: Federation) -> None:
    running = run_rounds(federation, make_algorithm(name), 1)
    running.storage.client_states.restore({})
    reports = running.evaluator.evaluate_clients().scores
    assert set(reports) == set(federation.clients)
    assert all(0 <= scores["accuracy"] <= 1 for scores in reports.values())


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


def test_the_server_reads_single_replies_of_these_algorithms_only() -> None:
    """All others can be used with secure sums."""
    assert {n for n in ALGORITHMS if "each" in all_client_methods(make_algorithm(n)).values()} == READS_REPLIES


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
