"""Small things that many tests stand on: a toy corpus, a model of a few thousand numbers, a federation of the two."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

if not torch.cuda.is_available():  # Triton looks at it when it is imported, which transformers does
    os.environ.setdefault("TRITON_INTERPRET", "1")

from motet.core.program import Algorithm, Round
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.toy_corpora import toy_classification
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.models.load_model import ModelConfig
from motet.report.progress import SilentProgress
from tests.runs import make_plan
from tests.sizes import SMALL


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that wait for processes begin first: at the end one worker would be left alone with them."""
    items.sort(key=lambda item: not {"e2e", "docs"} & set(item.path.parts))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return toy_classification(train=96, test=48, authors=6)


@pytest.fixture(scope="session")
def federation(corpus: Corpus) -> Federation:
    model = ModelConfig("tiny", 24, config=SMALL)
    made = federate_corpus(model, corpus, ComponentConfig("label", {"clients": 4, "alpha": 2.0}), Seed(7))
    public = made.server.global_test_rows[
        :16
    ]  # for methods that need public texts; the others have the same data as without
    return replace(
        made, groups=(replace(made.groups[0], public_rows=public),), server=replace(made.server, public_rows=public)
    )


@pytest.fixture(scope="session")
def frozen_federation(corpus: Corpus) -> Federation:
    """Embeddings and the first of two layers do not train."""
    model = ModelConfig("tiny", 24, ("embeddings", "layers 0"), config=SMALL)
    return federate_corpus(model, corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7))


@pytest.fixture(scope="session")
def backbone_federation(corpus: Corpus) -> Federation:
    """The same clients on an encoder-decoder that any task can stand on."""
    model = ModelConfig("mixed:tiny", 24, config=SMALL)
    return federate_corpus(model, corpus, ComponentConfig("label", {"clients": 4, "alpha": 2.0}), Seed(7))


@pytest.fixture
def executor() -> SerialExecutor:
    return SerialExecutor(torch.device("cpu"))


RunRounds = Callable[..., FederatedRun]


@pytest.fixture
def rounds() -> RunRounds:
    """Play some rounds of an algorithm and hand over the run as it stands."""

    def played(federation: Federation, algorithm: Algorithm, count: int = 2, **plan: object) -> FederatedRun:
        running = FederatedRun(
            make_plan(federation, algorithm, count, **plan), SerialExecutor(torch.device("cpu")), None, SilentProgress()
        )  # type: ignore[arg-type]
        for index in range(count):
            context = federation.server_context(index)
            rnd = Round(index, count, tuple(federation.clients), federation.seed.derive("round", index), context)
            running.mailbox.round = index
            running.state = running._play(running._noisy(algorithm.round(running.state, rnd), rnd.seed))
            running.memories.commit_round()
            running.done = index + 1
        return running

    return played
