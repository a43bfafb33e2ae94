"""Batches of texts of like length: every text once an epoch, little padding, and long batches of different clients meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.runs import make_plan
from tests.sizes import CALM

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
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.learning.jobs import Fit
from motet.learning.solver import Solver
from motet.learning.training.batch_order import batches_for_job, bucket_batches
from motet.models.load_model import ModelConfig
from motet.report.progress import SilentProgress

CPU = torch.device("cpu")
SOLVER = Solver(optimizer="sgd", lr=0.05, batch=4, epochs=2, bucket=4)


def drawn(solver: Solver, lengths: np.ndarray, seed: int = 0, pace: int = 7) -> list[np.ndarray]:
    return bucket_batches(solver, lengths, np.random.default_rng(seed), np.random.default_rng(pace))


def padded(order: list[np.ndarray], lengths: np.ndarray) -> int:
    return sum(len(batch) * int(lengths[batch].max()) for batch in order)


def skewed(count: int, seed: int = 0) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).lognormal(3, 1, count), 2, 256).astype(np.int64)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 16, 17, 150])
def test_every_text_is_seen_once_an_epoch_and_steps_are_as_many_as_before(count: int) -> None:
    lengths = skewed(count)
    order = drawn(SOLVER, lengths)
    assert len(order) == SOLVER.num_steps(count)
    for epoch in (order[: len(order) // 2], order[len(order) // 2 :]):
        assert sorted(np.concatenate([np.zeros(0, np.int64), *epoch]).tolist()) == list(range(count))
        assert sum(len(batch) < SOLVER.batch for batch in epoch) == bool(count % SOLVER.batch)
    assert len(drawn(replace(SOLVER, steps=5), lengths)) == (5 if count else 0)


def test_the_wider_the_window_the_less_padding() -> None:
    lengths = skewed(2000)
    plain = Solver(batch=16).draw_batches(2000, np.random.default_rng(0))
    spent = [padded(plain, lengths)] + [
        padded(drawn(Solver(batch=16, bucket=b), lengths), lengths) for b in (1, 4, 16, 125)
    ]
    assert spent[1:] == sorted(spent[1:], reverse=True)
    assert spent[3] < 0.65 * spent[0]
    assert spent[4] < 1.1 * lengths.sum()


def test_neither_the_place_of_a_batch_nor_of_the_short_one_tells_how_long_its_texts_are() -> None:
    """The mean over many draws: early and late steps see texts of the same length, and so does the short batch."""
    lengths, solver = np.sort(skewed(22)), Solver(batch=4, bucket=8)
    draws = [drawn(solver, lengths, seed, 1000 + seed) for seed in range(2000)]
    by_step = np.array([[lengths[batch].mean() for batch in order] for order in draws]).mean(0)
    assert np.abs(by_step / by_step.mean() - 1).max() < 0.1
    short = np.zeros(22)
    for order in draws:
        short[next(batch for batch in order if len(batch) == 2)] += 1
    assert np.corrcoef(short[2:-2], np.arange(18))[0, 1] < 0.3  # not the longest, nor the shortest
    assert short[-4:].sum() < 3 * short[:4].sum()


def test_long_batches_of_different_clients_meet() -> None:
    sizes = (160, 150, 90, 40)
    clients = [skewed(size, seed) for seed, size in enumerate(sizes)]
    solver = Solver(batch=8, bucket=20, epochs=2)

    def together(shared: bool) -> int:
        orders = [drawn(solver, lengths, i, 7 if shared else 50 + i) for i, lengths in enumerate(clients)]
        widths = 0
        for at in range(max(map(len, orders))):
            here = [(lengths, order[at]) for lengths, order in zip(clients, orders, strict=True) if at < len(order)]
            widths += len(here) * max(int(lengths[batch].max()) for lengths, batch in here)
        return widths

    assert together(shared=True) < 0.8 * together(shared=False)
    one, two = (drawn(Solver(batch=8, bucket=20), clients[0], seed) for seed in (1, 2))
    ranks = [np.argsort(np.argsort([clients[0][b].max() for b in order], kind="stable")) for order in (one, two)]
    assert np.corrcoef(*ranks)[0, 1] > 0.95
    assert [b.tolist() for b in one] != [b.tolist() for b in two]


def test_options_that_make_no_sense_are_refused() -> None:
    for options in ({"bucket": -1}, {"bucket": 4, "shuffle": False}):
        with pytest.raises(ConfigError, match=r"solver.bucket is"):
            Solver(**options)  # type: ignore[arg-type]


# ---- in rounds -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uneven() -> Federation:
    rng = np.random.default_rng(3)
    words = ["good", "bad", "slow", "fine", "plot", "end"]
    texts = [" ".join(rng.choice(words, int(n))) for n in np.clip(rng.lognormal(2, 1, 120), 1, 40)]
    corpus = Corpus("own", "classification", {"text": texts, "label": ["yes", "no"] * 60}, 100)
    config = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 24, **CALM}
    return federate_corpus(
        ModelConfig("tiny", 48, config=config),
        corpus,
        ComponentConfig("quantity", {"clients": 4, "beta": 3.0}),
        Seed(7),
    )


class Listening(SerialExecutor):
    def __init__(self) -> None:
        super().__init__(CPU)
        self.jobs: list[Fit] = []

    def submit(self, key: Any, job: Job) -> None:
        if isinstance(job, Fit):
            self.jobs.append(job)
        super().submit(key, job)


def ended(federation: Federation, executor: Any, algorithm: Any) -> list[Params]:
    running = FederatedRun(make_plan(federation, algorithm, 2), executor, None, SilentProgress())
    running.play_rounds()
    return [running.model_params(), *(running.model_params(client) for client in federation.clients)]


@pytest.mark.parametrize("algorithm", [fedavg(SOLVER), ditto(SOLVER)], ids=["fedavg", "ditto"])
def test_one_by_one_in_workers_and_side_by_side_it_is_the_same_training(algorithm: Any, uneven: Federation) -> None:
    alone = ended(uneven, SerialExecutor(CPU), algorithm)
    packed = ended(uneven, PackedExecutor(CPU, width=8, use_bf16=False), algorithm)
    models, features = (
        {m.key: m for m, _ in uneven.models_with_features},
        {f.key: f for _, f in uneven.models_with_features},
    )
    scratch = PrefixCache()
    workers = ProcessExecutor(2, models, features, scratch)
    try:
        forked = ended(uneven, workers, algorithm)
    finally:
        workers.close()
        scratch.close()
    for one, other, third in zip(alone, packed, forked, strict=True):
        assert torch.equal(one.flat, third.flat)
        assert (one - other).norm() <= 1e-4 * one.norm()


def test_clients_of_a_round_share_the_pace_and_rounds_do_not(uneven: Federation) -> None:
    executor = Listening()
    ended(uneven, executor, fedavg(SOLVER))
    paces = [{job.shuffle_seed for job in executor.jobs[at : at + 4]} for at in (0, 4)]
    assert [len(p) for p in paces] == [1, 1]
    assert paces[0] != paces[1]
    assert len({job.seed for job in executor.jobs}) == 8


def test_without_buckets_nothing_changes(uneven: Federation) -> None:
    executor = Listening()
    ended(uneven, executor, fedavg(replace(SOLVER, bucket=0)))
    for job in executor.jobs:
        assert job.shuffle_seed is None
        plain = job.solver.draw_batches(len(job.examples), Seed(job.seed).derive("order").numpy())
        assert [b.tolist() for b in batches_for_job(job)] == [b.tolist() for b in plain]
