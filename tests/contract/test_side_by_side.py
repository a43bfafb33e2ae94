"""Clients that train side by side change nothing but the speed: every algorithm, every formulation."""

from __future__ import annotations

import pytest
import torch
from tests.entries import DISTILLING, made
from tests.runs import make_plan

from motet.algorithms import ALGORITHMS
from motet.core.params import Params
from motet.core.program import Algorithm, Round
from motet.core.rng import Seed
from motet.core.script import run_script
from motet.core.work import Executor
from motet.datasets.load_corpus import BUILTIN_CORPORA
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation, federate_corpus
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.models.load_model import ModelConfig
from motet.report.progress import SilentProgress

CPU = torch.device("cpu")
SOLVER = Solver(optimizer="sgd", lr=0.05, batch=8)
DRY = {
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "dropout": 0.0, "attention_dropout": 0.0,
    "activation_dropout": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip


def ended(federation: Federation, algorithm: Algorithm, executor: Executor) -> tuple[list[Params], dict[str, float]]:
    """What every client would deploy after two rounds, and how the first of them does on its own test set."""
    running = FederatedRun(make_plan(federation, algorithm, 2), executor, None, SilentProgress())
    for index in range(2):
        context = federation.server_context(index)
        rnd = Round(index, 2, tuple(federation.clients), federation.seed.derive("round", index), context)
        running.mailbox.round = index
        running.state = run_script(algorithm.round(running.state, rnd), running.mailbox.run_exchange, executor.run)
        running.memories.commit_round()
        running.done = index + 1
    return [running.model_params(client) for client in federation.clients], running.look_at_clients()[
        federation.clients[0]
    ]


def same(federation: Federation, algorithm: Algorithm) -> None:
    (alone, scores), (packed, others) = (
        ended(federation, algorithm, executor)
        for executor in (SerialExecutor(CPU), PackedExecutor(CPU, width=8, use_bf16=False))
    )
    start = federation.initial_models().shared
    for one, other in zip(alone, packed, strict=True):
        moved = (one - start).norm() if one.layout == start.layout else one.norm()
        assert (one - other).norm() <= 1e-4 * moved
    assert scores == pytest.approx(others, abs=1e-3)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_learns_the_same_side_by_side(name: str, federation: Federation) -> None:
    same(federation, made(name, solver=SOLVER))


def test_clients_of_unlike_tasks_contrast_the_same_side_by_side() -> None:
    """From the second round on they have neighbours, and others to be unlike; two of them have the same task and one pack."""
    groups = [
        {"corpus": "toy-classification", "clients": 2},
        {"corpus": "toy-qa", "clients": 2, "task": {"max_question_tokens": 8}},
        {"corpus": "toy-seq2seq", "clients": 2, "task": {"max_target_tokens": 6, "num_beams": 1}},
    ]
    model = {"name": "mixed:tiny", "max_tokens": 32, "config": {**DRY, "hidden_size": 16, "intermediate_size": 24}}
    values = {"model": model, "data": {"limit": 24, "test_limit": 8}, "groups": groups}
    federation = build_federation(RunConfig.from_settings("unlike", values))
    same(federation, made("atc", solver=SOLVER, assign=0))


@pytest.mark.parametrize("name", DISTILLING)
def test_taggers_teach_one_another_the_same_side_by_side(name: str) -> None:
    corpus = BUILTIN_CORPORA["toy-tagging"](train=48, test=16)  # type: ignore[call-arg]
    model = ModelConfig("tiny", 24, config={**DRY, "hidden_size": 16, "intermediate_size": 24})
    federation = federate_corpus(model, corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7), public_share=0.25)
    same(federation, made(name, solver=SOLVER))


@pytest.mark.parametrize("name", [name for name in BUILTIN_CORPORA if name.startswith("toy-")])
def test_every_formulation_learns_the_same_side_by_side(name: str) -> None:
    corpus = BUILTIN_CORPORA[name](train=48, test=16)  # type: ignore[call-arg]
    model = ModelConfig("tiny", 80, config=DRY)
    federation = federate_corpus(model, corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7))
    same(federation, ALGORITHMS["fedavg"](solver=SOLVER))
