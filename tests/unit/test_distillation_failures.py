"""Federated distillation when training diverges, clients drop out, or data is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.runs import advance, run_round, start_run
from tests.sizes import SMALL

from motet.algorithms import adafd, fedkd
from motet.algorithms.distillation_weights import TrainingStats
from motet.core.errors import ConfigError, RunError
from motet.core.rng import Seed
from motet.core.script import Note
from motet.core.work import Executor, Job, JobFailure
from motet.datasets.corpus import Corpus
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation, federate_corpus
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit, Infer
from motet.learning.lr_schedule import LRHorizon
from motet.learning.solver import Solver
from motet.models.model_config import ModelConfig
from motet.partitions.partition import ClientRows
from motet.transport.mailbox import Mailbox
from motet.transport.requests import Request
from motet.transport.wait_policy import WaitPolicy

SOLVER = Solver(lr=0.01, batch=16, epochs=2)
TWO_CLIENTS = ComponentConfig("uniform", {"clients": 2})
SUMMARY_OF_LEFT_OUT = (
    "round 1: 1 of 4 clients are left out of the pool: no training data, or a loss that is not finite."
)
both_exchanges = pytest.mark.parametrize("exchange", ["gather", "sum"])


class JobExecutor(Executor):
    """Runs jobs one by one, and lets subclasses replace jobs and results."""

    def __init__(self) -> None:
        self.inner, self.jobs = SerialExecutor(torch.device("cpu")), list[Job]()

    @property
    def examples_processed(self) -> int:
        return self.inner.examples_processed

    def submit(self, key: Any, job: Job) -> None:
        self.jobs.append(job)
        self.inner.submit(key, self.replace_job(job))

    def wait_completed(self) -> Any:
        job = self.inner.queue[0][1]
        return [(key, self.replace_result(job, result)) for key, result in self.inner.wait_completed()]

    def run(self, job: Job) -> Any:
        return self.inner.run(job)

    def replace_job(self, job: Job) -> Job:
        return job

    def replace_result(self, job: Job, result: Any) -> Any:
        return result


class FailingFits(JobExecutor):
    """Training on certain rows fails."""

    def __init__(self, rows: np.ndarray) -> None:
        super().__init__()
        self.rows = rows

    def replace_result(self, job: Job, result: Any) -> Any:
        if isinstance(job, Fit) and np.array_equal(job.examples.rows, self.rows):
            return JobFailure(RunError("training gave a loss of nan at step 1 of 2"))
        return result


class DivergingFits(FailingFits):
    """Training on certain rows diverges, because of a very large learning rate."""

    def replace_job(self, job: Job) -> Job:
        if isinstance(job, Fit) and np.array_equal(job.examples.rows, self.rows):
            return replace(job, solver=replace(job.solver, optimizer="sgd", lr=1e30, clip=0.0, epochs=8))
        return job

    def replace_result(self, job: Job, result: Any) -> Any:
        return result


class InfiniteLogits(JobExecutor):
    """The third inference gives infinite logits. It belongs to the third client, because clients run one by one."""

    def replace_result(self, job: Job, result: Any) -> Any:
        inferences = [each for each in self.jobs if isinstance(each, Infer)]
        if isinstance(job, Infer) and len(inferences) == 3:
            return {"logits": result["logits"] * float("inf")}
        return result


def note_texts(notes: list[Note]) -> list[str]:
    return [note.text for note in notes if note.text]


def logged_weights(notes: list[Note]) -> dict[str, float]:
    return {note.source: note.values["weight"] for note in notes if note.kind == "distillation"}


def train_rows(federation: Federation, client: str) -> np.ndarray:
    return federation.participant(client).split("train").rows


def assert_equal_to_run_without(client: str, running: FederatedRun, federation: Federation, algorithm: Any) -> None:
    """The pool must be the same as if the client were not part of the cohort."""
    others = [other for other in federation.clients if other != client]
    state = run_round(start_run(federation, algorithm), cohort=others)
    assert torch.allclose(running.state.params.flat, state.params.flat, atol=1e-6)


# ---- training fails --------------------------------------------------------------------------------------------------


def test_a_client_with_a_failed_training_is_left_out_with_a_note(federation: Federation) -> None:
    client = federation.clients[1]
    notes: list[Note] = []
    executor = FailingFits(train_rows(federation, client))
    running = advance(start_run(federation, adafd(SOLVER), executor=executor), notes=notes)
    assert note_texts(notes) == [f"round 1: {client} is left out of the pool: its training loss is nan."]
    weights = logged_weights(notes)
    assert set(weights) == {*federation.clients} - {client}
    assert sum(weights.values()) == pytest.approx(1)
    assert running.storage.client_states.get("adafd", client).is_finite(), "it learns from the other clients"


@both_exchanges
def test_a_client_whose_training_diverges_is_left_out(exchange: Any, federation: Federation) -> None:
    client = federation.clients[1]
    notes: list[Note] = []
    algorithm = adafd(SOLVER, exchange=exchange)
    executor = DivergingFits(train_rows(federation, client))
    running = advance(start_run(federation, algorithm, executor=executor), notes=notes)
    assert_equal_to_run_without(client, running, federation, algorithm)
    note = f"round 1: {client} is left out of the pool: its training loss is nan."
    assert note_texts(notes) == [note if exchange == "gather" else SUMMARY_OF_LEFT_OUT]
    assert running.storage.client_states.get("adafd", client).is_finite()


@both_exchanges
def test_a_client_with_infinite_logits_is_left_out(exchange: Any, federation: Federation) -> None:
    client = federation.clients[2]
    notes: list[Note] = []
    executor = InfiniteLogits()
    running = advance(start_run(federation, adafd(SOLVER, exchange=exchange), executor=executor), notes=notes)
    assert sum(isinstance(job, Infer) for job in executor.jobs) == 4
    assert running.state.params.is_finite()
    assert any("left out of the pool" in text for text in note_texts(notes))
    assert client not in logged_weights(notes)


def test_clients_that_cannot_learn_from_the_server_keep_their_models(federation: Federation) -> None:
    notes: list[Note] = []
    executor = FailingFits(federation.server_participant.split("public").rows)
    running = advance(start_run(federation, adafd(SOLVER), executor=executor), notes=notes)
    assert any("4 clients could not learn" in text for text in note_texts(notes))
    assert all(running.storage.client_states.get("adafd", client).is_finite() for client in federation.clients)


def test_statistics_with_a_loss_that_is_not_finite_are_not_usable() -> None:
    assert TrainingStats(loss=1.0, num_examples=5).is_usable
    assert not TrainingStats(loss=float("nan"), num_examples=5).is_usable
    assert not TrainingStats(loss=1.0, num_examples=0).is_usable


# ---- clients without data --------------------------------------------------------------------------------------------


def remove_training_data(federation: Federation, *clients: int) -> Federation:
    """Return the federation without the training rows of some clients, given by their indices."""
    group = federation.groups[0]
    rows = ClientRows.from_lists([group.train[k][: 0 if k in clients else None] for k in range(4)])
    return replace(federation, groups=(replace(group, train=rows, partition=replace(group.partition, train=rows)),))


@both_exchanges
def test_a_client_without_training_data_is_left_out_but_learns(exchange: Any, federation: Federation) -> None:
    notes: list[Note] = []
    without_data = remove_training_data(federation, 2)
    running = advance(start_run(without_data, adafd(SOLVER, exchange=exchange)), notes=notes)
    params = running.storage.client_states.get("adafd", without_data.clients[2])
    assert not torch.equal(params.flat, without_data.model.initial_params.flat)
    note = "round 1: client-2 is left out of the pool: no training data."
    assert note_texts(notes) == [note if exchange == "gather" else SUMMARY_OF_LEFT_OUT]


def test_without_any_usable_client_the_run_fails(federation: Federation) -> None:
    with pytest.raises(RunError, match="none of 4 clients has a finite training loss"):
        advance(start_run(remove_training_data(federation, 0, 1, 2, 3), adafd(SOLVER)))


# ---- lost messages ---------------------------------------------------------------------------------------------------


class LossyTransport:
    """Loses the requests to one client with one address."""

    def __init__(self, inner: Any, address: str, client: str) -> None:
        self.inner, self.lost = inner, (address, client)

    def send(self, request: Request) -> None:
        if (request.address, request.client) != self.lost:
            self.inner.send(request)

    def receive(self, timeout: float) -> Any:
        return self.inner.receive(timeout)

    def close(self) -> None: ...


def lossy_mailbox(running: FederatedRun, address: str, client: str) -> Mailbox:
    return Mailbox(
        LossyTransport(running.engine.transport, address, client), WaitPolicy(quorum=0.5, timeout=1.0, on_error="drop")
    )


def test_a_client_that_misses_the_second_exchange_keeps_its_trained_model(federation: Federation) -> None:
    client = federation.clients[3]
    running = start_run(federation, adafd(SOLVER))
    mailbox = lossy_mailbox(running, "adafd.study", client)
    advance(running, mailbox=mailbox)
    assert mailbox.failures == [(0, client, "did not reply")]
    trained_only = advance(start_run(federation, fedkd(SOLVER)))  # FedKD has no second exchange
    expected = trained_only.storage.client_states.get("fedkd", client)
    assert torch.equal(running.storage.client_states.get("adafd", client).flat, expected.flat)
    advance(running, 1)
    assert not torch.equal(running.storage.client_states.get("adafd", client).flat, expected.flat), (
        "it takes part again"
    )


@both_exchanges
def test_a_client_that_misses_the_first_exchange_is_not_pooled(exchange: Any, federation: Federation) -> None:
    client = federation.clients[0]
    algorithm = adafd(SOLVER, exchange=exchange)
    running = start_run(federation, algorithm)
    mailbox = lossy_mailbox(running, "adafd.opine", client)
    advance(running, mailbox=mailbox)
    assert (0, client, "did not reply") in mailbox.failures
    assert_equal_to_run_without(client, running, federation, algorithm)


# ---- public data -----------------------------------------------------------------------------------------------------


def test_public_texts_may_be_empty() -> None:
    texts = ["good lovely", "bad awful", "", "fine happy", "poor sad", "great", "dull", "good", "bad", ""]
    corpus = Corpus("empty texts", "classification", {"text": texts, "label": ["yes", "no"] * 5}, 8)
    federation = federate_corpus(ModelConfig("tiny", 24, config=SMALL), corpus, TWO_CLIENTS, Seed(3))
    empty = np.array([2, 9])
    federation = replace(
        federation,
        groups=(replace(federation.groups[0], public_rows=empty),),
        server=replace(federation.server, public_rows=empty),
    )
    running = advance(start_run(federation, adafd(SOLVER)))
    assert running.state.params.is_finite()
    assert not torch.equal(running.state.params.flat, federation.model.initial_params.flat)
    assert running.engine.mailbox.traffic.payload_up == 2 * (2 * 2 * 4 + 8)


def test_a_federation_without_public_texts_is_rejected(corpus: Corpus) -> None:
    federation = federate_corpus(ModelConfig("tiny", 24, config=SMALL), corpus, TWO_CLIENTS, Seed(3))
    with pytest.raises(ConfigError, match=r"needs public texts.*data.public_share=0\.2"):
        advance(start_run(federation, adafd(SOLVER)))


def test_tasks_without_classes_are_rejected() -> None:
    settings = {
        "data": {"name": "toy-regression", "limit": 40, "test_limit": 10, "public_share": 0.2},
        "partition": {"clients": 2},
        "model": {"name": "tiny", "max_tokens": 24, "config": SMALL},
    }
    federation = build_federation(RunConfig.from_settings("regression", settings))
    with pytest.raises(ConfigError, match="needs class logits, but the task is regression"):
        advance(start_run(federation, adafd(SOLVER)))


# ---- the authors' code -----------------------------------------------------------------------------------------------


def test_the_released_code_restarts_the_schedule_in_every_epoch(federation: Federation) -> None:
    rows = train_rows(federation, federation.clients[0])
    executor = JobExecutor()
    algorithm = adafd(replace(SOLVER, epochs=3), released_code=True)
    advance(start_run(federation, algorithm, rounds=1, executor=executor))
    fits = [job for job in executor.jobs if isinstance(job, Fit) and np.array_equal(job.examples.rows, rows)]
    steps_per_epoch = SOLVER.num_steps(len(rows)) // SOLVER.epochs
    assert [(fit.solver.epochs, fit.lr_horizon) for fit in fits] == [(1, LRHorizon(0, 3 * steps_per_epoch))] * 3
