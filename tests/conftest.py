"""Fixtures that many tests share: a toy corpus, and federations with tiny models."""

from __future__ import annotations

import os

# The tests run side by side. Several threads in each would wait for each other. numpy reads it at import.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest
import torch

if not torch.cuda.is_available():  # Triton reads it at import, and transformers imports Triton
    os.environ.setdefault("TRITON_INTERPRET", "1")

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.toy_corpora import toy_classification
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.models.model_config import AdapterConfig, ModelConfig
from tests.sizes import SMALL


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let every test process begin with a share of the slow files, so that none is left alone with them at the end.

    pytest-xdist gives each process a contiguous part of the tests, and lets idle processes steal from the others.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if {"e2e", "docs"} & set(item.path.parts)]
    fast = iter([item for item in items if not {"e2e", "docs"} & set(item.path.parts)])
    files = sorted({item.path for item in slow})
    part_size = -(-len(items) // processes)
    parts: list[pytest.Item] = []
    for i in range(processes):
        share = [item for item in slow if item.path in files[i::processes]]
        parts += [*share, *islice(fast, max(0, part_size - len(share)))]
    items[:] = [*parts, *fast]


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
    federation = federate_corpus(model, corpus, ComponentConfig("label", {"clients": 4, "alpha": 2.0}), Seed(7))
    public_rows = federation.server.global_test_rows[:16]  # for distillation; the other data is the same as without it
    groups = (replace(federation.groups[0], public_rows=public_rows),)
    return replace(federation, groups=groups, server=replace(federation.server, public_rows=public_rows))


@pytest.fixture(scope="session")
def frozen_federation(corpus: Corpus) -> Federation:
    """A federation in which the embeddings and the first of two layers are frozen."""
    model = ModelConfig("tiny", 24, ("embeddings", "layers 0"), config=SMALL)
    return federate_corpus(model, corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7))


@pytest.fixture(scope="session")
def backbone_federation(corpus: Corpus) -> Federation:
    """The clients of `federation` with an encoder-decoder model that supports all tasks."""
    model = ModelConfig("mixed:tiny", 24, config=SMALL)
    return federate_corpus(model, corpus, ComponentConfig("label", {"clients": 4, "alpha": 2.0}), Seed(7))


@pytest.fixture(scope="session")
def adapter_federation(corpus: Corpus) -> Federation:
    """The clients of `federation` with LoRA adapters on a frozen model."""
    model = ModelConfig("tiny", 24, adapter=AdapterConfig(rank=4), config=SMALL)
    return federate_corpus(model, corpus, ComponentConfig("label", {"clients": 4, "alpha": 2.0}), Seed(7))


@pytest.fixture
def executor() -> SerialExecutor:
    return SerialExecutor(torch.device("cpu"))
