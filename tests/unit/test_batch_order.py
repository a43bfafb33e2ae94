"""Bucketing by length: every text once per epoch, little padding, and long batches of different clients coincide."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.runs import make_plan
from tests.sizes import NO_DROPOUT

from motet.algorithms import ditto, fedavg
from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.work import Job
from motet.datasets.corpus import Corpus
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.process_executor import ProcessExecutor
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit
from motet.learning.solver import Solver
from motet.learning.training.batch_order import batches_for_job, bucket_batches
from motet.models.model_config import ModelConfig

CPU = torch.device("cpu")
SOLVER = Solver(optimizer="sgd", lr=0.05, batch=4, epochs=2, bucket=4)


def draw(solver: Solver, lengths: np.ndarray, seed: int = 0, shared_seed: int = 7) -> list[np.ndarray]:
    return bucket_batches(solver, lengths, np.random.default_rng(seed), np.random.default_rng(shared_seed))


def padded_tokens(batches: list[np.ndarray], lengths: np.ndarray) -> int:
    return sum(len(batch) * int(lengths[batch].max()) for batch in batches)


def skewed_lengths(count: int, seed: int = 0) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).lognormal(3, 1, count), 2, 256).astype(np.int64)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 16, 17, 150])
def test_every_text_is_used_once_per_epoch_in_the_usual_number_of_steps(count: int) -> None:
    lengths = skewed_lengths(count)
    batches = draw(SOLVER, lengths)
    assert len(batches) == SOLVER.num_steps(count)
    for epoch in (batches[: len(batches) // 2], batches[len(batches) // 2 :]):
        assert sorted(np.concatenate([np.zeros(0, np.int64), *epoch]).tolist()) == list(range(count))
        assert sum(len(batch) < SOLVER.batch for batch in epoch) == bool(count % SOLVER.batch)
    assert len(draw(replace(SOLVER, steps=5), lengths)) == (5 if count else 0)


def test_wider_windows_need_less_padding() -> None:
    lengths = skewed_lengths(2000)
    unbucketed = padded_tokens(Solver(batch=16).draw_batches(2000, np.random.default_rng(0)), lengths)
    windows = [padded_tokens(draw(Solver(batch=16, bucket=b), lengths), lengths) for b in (1, 4, 16, 125)]
    assert windows == sorted(windows, reverse=True)
    assert windows[2] < 0.65 * unbucketed
    assert windows[3] < 1.1 * lengths.sum()


def test_neither_the_step_nor_being_in_the_short_batch_depends_on_length() -> None:
    """In the mean over many draws, early and late steps have texts of the same length, and so has the short batch."""
    lengths, solver = np.sort(skewed_lengths(22)), Solver(batch=4, bucket=8)
    draws = [draw(solver, lengths, seed, 1000 + seed) for seed in range(2000)]
    by_step = np.array([[lengths[batch].mean() for batch in batches] for batches in draws]).mean(0)
    assert np.abs(by_step / by_step.mean() - 1).max() < 0.1
    in_short_batch = np.zeros(22)
    for batches in draws:
        in_short_batch[next(batch for batch in batches if len(batch) == 2)] += 1
    assert np.corrcoef(in_short_batch[2:-2], np.arange(18))[0, 1] < 0.3
    assert in_short_batch[-4:].sum() < 3 * in_short_batch[:4].sum()


def test_long_batches_of_different_clients_coincide() -> None:
    clients = [skewed_lengths(size, seed) for seed, size in enumerate((160, 150, 90, 40))]
    solver = Solver(batch=8, bucket=20, epochs=2)

    def total_width(shares_seed: bool) -> int:
        batches = [draw(solver, lengths, i, 7 if shares_seed else 50 + i) for i, lengths in enumerate(clients)]
        total = 0
        for step in range(max(map(len, batches))):
            active = [(lengths, c[step]) for lengths, c in zip(clients, batches, strict=True) if step < len(c)]
            total += len(active) * max(int(lengths[batch].max()) for lengths, batch in active)
        return total

    assert total_width(shares_seed=True) < 0.8 * total_width(shares_seed=False)


def test_two_clients_have_the_same_order_of_lengths_but_not_of_texts() -> None:
    lengths = skewed_lengths(160)
    one, other = (draw(Solver(batch=8, bucket=20), lengths, seed) for seed in (1, 2))
    ranks = [np.argsort(np.argsort([lengths[b].max() for b in batches], kind="stable")) for batches in (one, other)]
    assert np.corrcoef(*ranks)[0, 1] > 0.95
    assert [b.tolist() for b in one] != [b.tolist() for b in other]


@pytest.mark.parametrize("options", [{"bucket": -1}, {"bucket": 4, "shuffle": False}])
def test_invalid_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"solver.bucket is"):
        Solver(**options)


# ---- in rounds -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uneven_federation() -> Federation:
    """Clients of different sizes with texts of different lengths."""
    rng = np.random.default_rng(3)
    words = ["good", "bad", "slow", "fine", "plot", "end"]
    texts = [" ".join(rng.choice(words, int(n))) for n in np.clip(rng.lognormal(2, 1, 120), 1, 40)]
    corpus = Corpus("own", "classification", {"text": texts, "label": ["yes", "no"] * 60}, 100)
    config = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 24, **NO_DROPOUT}
    model = ModelConfig("tiny", 48, config=config)
    return federate_corpus(model, corpus, ComponentConfig("quantity", {"clients": 4, "beta": 3.0}), Seed(7))


class RecordingExecutor(SerialExecutor):
    def __init__(self) -> None:
        super().__init__(CPU)
        self.jobs: list[Fit] = []

    def submit(self, key: Any, job: Job) -> None:
        if isinstance(job, Fit):
            self.jobs.append(job)
        super().submit(key, job)


def run_two_rounds(federation: Federation, executor: Any, algorithm: Any) -> list[Params]:
    """Return the global model and every client's model."""
    run = FederatedRun(make_plan(federation, algorithm, 2), executor)
    run.run_rounds()
    return [run.model_for(), *(run.model_for(client) for client in federation.clients)]


@pytest.mark.parametrize("algorithm", [fedavg(SOLVER), ditto(SOLVER)], ids=["fedavg", "ditto"])
def test_all_executors_give_the_same_models(algorithm: Any, uneven_federation: Federation) -> None:
    serial = run_two_rounds(uneven_federation, SerialExecutor(CPU), algorithm)
    packed = run_two_rounds(uneven_federation, PackedExecutor(CPU, width=8, use_bf16=False), algorithm)
    pairs = uneven_federation.models_with_features
    workers = ProcessExecutor(2, {m.key: m for m, _ in pairs}, {f.key: f for _, f in pairs})
    with closing(workers):
        in_processes = run_two_rounds(uneven_federation, workers, algorithm)
    for one, other, third in zip(serial, packed, in_processes, strict=True):
        assert torch.equal(one.flat, third.flat)
        assert (one - other).norm() <= 1e-4 * one.norm()


def test_clients_of_a_round_share_the_shuffle_seed_and_rounds_do_not(uneven_federation: Federation) -> None:
    executor = RecordingExecutor()
    run_two_rounds(uneven_federation, executor, fedavg(SOLVER))
    first, second = ({job.shuffle_seed for job in executor.jobs[at : at + 4]} for at in (0, 4))
    assert len(first) == len(second) == 1
    assert first != second
    assert len({job.seed for job in executor.jobs}) == 8


def test_without_bucketing_batches_are_drawn_from_all_texts(uneven_federation: Federation) -> None:
    executor = RecordingExecutor()
    run_two_rounds(uneven_federation, executor, fedavg(replace(SOLVER, bucket=0)))
    assert executor.jobs
    for job in executor.jobs:
        assert job.shuffle_seed is None
        expected = job.solver.draw_batches(len(job.examples), Seed(job.seed).derive("order").numpy())
        assert [b.tolist() for b in batches_for_job(job)] == [b.tolist() for b in expected]
