"""The packed executor gives the same models as the serial one, for every algorithm and every task formulation."""

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
NO_DROPOUT = {
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "dropout": 0.0, "attention_dropout": 0.0,
    "activation_dropout": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip


def run_two_rounds(
    federation: Federation, algorithm: Algorithm, executor: Executor
) -> tuple[list[Params], dict[str, float]]:
    """Return the model that every client would deploy, and the first client's metrics on its test set."""
    run = FederatedRun(make_plan(federation, algorithm, 2), executor, None, SilentProgress())
    for index in range(2):
        context = federation.server_context(index)
        round_ = Round(index, 2, tuple(federation.clients), federation.seed.derive("round", index), context)
        run.mailbox.round = index
        run.state = run_script(algorithm.round(run.state, round_), run.mailbox.run_exchange, executor.run)
        run.memories.commit_round()
        run.done = index + 1
    models = [run.model_params(client) for client in federation.clients]
    return models, run.look_at_clients()[federation.clients[0]]


def assert_same_models(federation: Federation, algorithm: Algorithm) -> None:
    serial, metrics = run_two_rounds(federation, algorithm, SerialExecutor(CPU))
    packed, packed_metrics = run_two_rounds(federation, algorithm, PackedExecutor(CPU, width=8, use_bf16=False))
    start = federation.initial_models().shared
    for one, other in zip(serial, packed, strict=True):
        scale = (one - start).norm() if one.layout == start.layout else one.norm()
        assert (one - other).norm() <= 1e-4 * scale
    assert metrics == pytest.approx(packed_metrics, abs=1e-3)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_gives_the_same_models(name: str, federation: Federation) -> None:
    assert_same_models(federation, made(name, solver=SOLVER))


def test_contrastive_training_of_different_tasks_gives_the_same_models() -> None:
    """From the second round on there are neighbors and negatives. Two clients each have the same task and are packed."""
    groups = [
        {"corpus": "toy-classification", "clients": 2},
        {"corpus": "toy-qa", "clients": 2, "task": {"max_question_tokens": 8}},
        {"corpus": "toy-seq2seq", "clients": 2, "task": {"max_target_tokens": 6, "num_beams": 1}},
    ]
    model = {
        "name": "mixed:tiny",
        "max_tokens": 32,
        "config": {**NO_DROPOUT, "hidden_size": 16, "intermediate_size": 24},
    }
    values = {"model": model, "data": {"limit": 24, "test_limit": 8}, "groups": groups}
    federation = build_federation(RunConfig.from_settings("different tasks", values))
    assert_same_models(federation, made("atc", solver=SOLVER, assign=0))


@pytest.mark.parametrize("name", DISTILLING)
def test_distillation_of_taggers_gives_the_same_models(name: str) -> None:
    corpus = BUILTIN_CORPORA["toy-tagging"](train=48, test=16)  # type: ignore[call-arg]
    model = ModelConfig("tiny", 24, config={**NO_DROPOUT, "hidden_size": 16, "intermediate_size": 24})
    federation = federate_corpus(model, corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7), public_share=0.25)
    assert_same_models(federation, made(name, solver=SOLVER))


@pytest.mark.parametrize("name", [name for name in BUILTIN_CORPORA if name.startswith("toy-")])
def test_every_task_formulation_gives_the_same_models(name: str) -> None:
    corpus = BUILTIN_CORPORA[name](train=48, test=16)  # type: ignore[call-arg]
    model = ModelConfig("tiny", 80, config=NO_DROPOUT)
    federation = federate_corpus(model, corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7))
    assert_same_models(federation, ALGORITHMS["fedavg"](solver=SOLVER))
