"""A small federation that runs in a second, and short ways to run an algorithm on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from motet.codecs.chain import Channel
from motet.core.program import Algorithm
from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.core.work import Executor
from motet.datasets.corpus import Corpus
from motet.datasets.toy_corpora import toy_classification
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.build.run_components import RunComponents
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.round_engine import ConnectClients
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.models.model_config import ModelConfig
from motet.partitions.partition import ClientRows
from motet.transport.in_process import InProcessTransport

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TINY_MODEL = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 24, **NO_DROPOUT}


def make_federation(
    corpus: Corpus | None = None, *, clients: int = 4, task: str = "auto", public_share: float = 0.2
) -> Federation:
    """Return clients with different labels and a model of two layers. The default corpus has four topics."""
    corpus = toy_classification(train=96, test=48, authors=6) if corpus is None else corpus
    partition = ComponentConfig("label", {"clients": clients, "alpha": 2.0})
    if "label" not in corpus.columns:
        partition = ComponentConfig("uniform", {"clients": clients})
    return federate_corpus(
        ModelConfig("tiny", 24, config=TINY_MODEL),
        corpus,
        partition,
        Seed(7),
        task=ComponentConfig(task),
        public_share=public_share,
    )


def without_examples(federation: Federation) -> Federation:
    """Return the federation with a first client that has no training rows."""
    first, *others = federation.groups
    index = first.clients.start

    def empty(rows: ClientRows) -> ClientRows:
        return ClientRows.from_lists([rows[i][: 0 if i == index else None] for i in range(len(rows))])

    partition = replace(first.partition, train=empty(first.partition.train))
    return replace(federation, groups=(replace(first, train=empty(first.train), partition=partition), *others))


def start_run(
    federation: Federation,
    algorithm: Algorithm,
    rounds: int,
    *,
    executor: Executor | None = None,
    connect: ConnectClients = InProcessTransport,
    channel: Channel = Channel(),
) -> FederatedRun:
    """Start a run; no round has run yet."""
    components = RunComponents(algorithm=algorithm, channel=channel)
    plan = RunPlan(federation=federation, components=components, rounds=rounds)
    executor = SerialExecutor(torch.device("cpu")) if executor is None else executor
    return FederatedRun(plan, executor, folder=None, callback=None, connect=connect, is_remote=False)


def run_rounds(
    federation: Federation,
    algorithm: Algorithm,
    rounds: int = 2,
    *,
    cohort: Iterable[ClientId] | None = None,
    **options: Any,
) -> FederatedRun:
    """Run rounds with the same cohort, by default all clients, without evaluation."""
    run = start_run(federation, algorithm, rounds, **options)
    for _ in range(rounds):
        run.engine.run_round(tuple(federation.clients if cohort is None else cohort))
    return run
