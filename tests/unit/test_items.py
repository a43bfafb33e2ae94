"""Every task scores every example, and the mean of the scores is what the task is judged by, where that is a mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motet.algorithms import fedavg
from motet.core.rng import Seed
from motet.datasets.load import DATASETS
from motet.experiment.build import make_federation
from motet.experiment.config import Choice, Evaluation
from motet.experiment.plan import Plan
from motet.experiment.record import read_items, write_items
from motet.experiment.run import run
from motet.learning.bench import Alone
from motet.learning.context import Judgement
from motet.models.load import ModelChoice

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16}
IS_A_MEAN = {"toy-classification", "toy-pairs", "toy-qa", "toy-seq2seq"}


def judged(name: str) -> tuple[Judgement, int, str]:
    corpus = DATASETS[name]().sample(24, 12, np.random.default_rng(0))
    config = SMALL if name not in ("toy-seq2seq", "toy-lm") else {}
    options = {"toy-qa": {"question_tokens": 8}, "toy-seq2seq": {"target_tokens": 6, "beams": 1}, "toy-lm": {"group": False}}
    choice = Choice("auto", options.get(name, {}))
    made = make_federation(ModelChoice("tiny", 32, config=config), corpus, Choice("uniform", {"clients": 2}), Seed(3), choice)
    work, bench = made.server_context(0).judge(made.model.fresh, "global", items=True), Alone(torch.device("cpu"))
    try:
        job = next(work)
        while True:
            job = work.send(bench.run(job))
    except StopIteration as end:
        return end.value, len(corpus) - corpus.train, made.task.headline


@pytest.mark.parametrize("name", [n for n in DATASETS if n.startswith("toy")])
def test_every_example_has_a_score(name: str) -> None:
    found, examples, headline = judged(name)
    assert found.items is not None
    assert found.items.dtype == np.float32
    assert np.isfinite(found.items).all()
    assert len(found.items) >= examples if name == "toy-lm" else len(found.items) == examples
    if name in IS_A_MEAN:
        assert found.items.mean() == pytest.approx(found.scores[headline], abs=1e-6)
    if name == "toy-regression":
        assert -found.items.mean() == pytest.approx(found.scores["loss"], rel=1e-5)


def test_items_of_clients_are_kept_only_if_that_is_strategy_of(federation, bench) -> None:  # type: ignore[no-untyped-def]
    kept, _ = run(Plan(federation, fedavg(), 1, evaluation=Evaluation(items=True)), bench)
    assert {len(items) for owner, items in kept.items.items() if owner} == set(federation.partition.test.sizes.tolist())
    own = np.mean([items.mean() for owner, items in kept.items.items() if owner])
    assert own == pytest.approx(kept.clients_final["mean"], abs=1e-6)
    plain, _ = run(Plan(federation, fedavg(), 1), bench)
    assert set(plain.items) == {""}
    assert plain.items[""].mean() == pytest.approx(plain.final["accuracy"], abs=1e-6)


def test_items_are_read_as_they_were_written(tmp_path) -> None:  # type: ignore[no-untyped-def]
    items = {"": np.array([1, 0, 1], np.float32), "client-0": np.zeros(0, np.float32), "client-1": np.array([0.5], np.float32)}
    write_items(tmp_path, items)
    found = read_items(tmp_path)
    assert list(found) == list(items)
    assert all(np.array_equal(found[n], items[n]) for n in items)
    assert read_items(tmp_path / "elsewhere") == {}
