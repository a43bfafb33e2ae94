"""Packed execution gives the same results as serial execution, for every algorithm and every task."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.entries import DISTILLATION, make_algorithm
from tests.runs import advance, start_run

from motet.algorithms import ALGORITHMS
from motet.core.program import Algorithm
from motet.core.rebased import split_base
from motet.core.rng import Seed
from motet.core.work import Executor
from motet.datasets.load_corpus import BUILTIN_CORPORA
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation, federate_corpus
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.models.model_config import ModelConfig

CPU = torch.device("cpu")
SOLVER = Solver(optimizer="sgd", lr=0.05, batch=8)
NO_DROPOUT = {
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "dropout": 0.0, "attention_dropout": 0.0,
    "activation_dropout": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
SMALL_WITHOUT_DROPOUT = {**NO_DROPOUT, "hidden_size": 16, "intermediate_size": 24}


def run_two_rounds(federation: Federation, algorithm: Algorithm, executor: Executor) -> FederatedRun:
    running = start_run(federation, algorithm, executor=executor)
    for index in range(2):
        advance(running, index)
    return running


def assert_packing_changes_nothing(federation: Federation, algorithm: Algorithm) -> None:
    serial = run_two_rounds(federation, algorithm, SerialExecutor(CPU))
    packed = run_two_rounds(federation, algorithm, PackedExecutor(CPU, width=8, use_bf16=False))
    initial = federation.initial_models().shared
    for client in federation.clients:
        params, base_update = split_base(serial.model_for(client))
        packed_params, packed_base_update = split_base(packed.model_for(client))
        scale = (params - initial).norm() if params.layout == initial.layout else params.norm()
        assert (params - packed_params).norm() <= 1e-4 * scale
        assert (base_update is None) == (packed_base_update is None)
        if base_update is not None and packed_base_update is not None:
            assert (base_update - packed_base_update).norm() <= 1e-4 * max(base_update.norm(), scale)
    first = federation.clients[0]
    assert serial.evaluator.evaluate_clients().scores[first] == pytest.approx(
        packed.evaluator.evaluate_clients().scores[first], abs=1e-3
    )


def load_toy_corpus(name: str) -> Any:
    return BUILTIN_CORPORA[name](train=48, test=16)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_can_be_packed(name: str, federation: Federation) -> None:
    assert_packing_changes_nothing(federation, make_algorithm(name, solver=SOLVER))


def test_clients_with_different_tasks_can_be_packed_in_the_contrast_stage() -> None:
    """The second round has a contrastive loss. Clients with the same task share a pack."""
    settings = {
        "model": {"name": "mixed:tiny", "max_tokens": 32, "config": SMALL_WITHOUT_DROPOUT},
        "data": {"limit": 24, "test_limit": 8},
        "groups": [
            {"corpus": "toy-classification", "clients": 2},
            {"corpus": "toy-qa", "clients": 2, "task": {"max_question_tokens": 8}},
            {"corpus": "toy-seq2seq", "clients": 2, "task": {"max_target_tokens": 6, "num_beams": 1}},
        ],
    }
    federation = build_federation(RunConfig.from_settings("mixed tasks", settings))
    assert_packing_changes_nothing(federation, make_algorithm("atc", solver=SOLVER, assign=0))


@pytest.mark.parametrize("name", DISTILLATION)
def test_distillation_of_taggers_can_be_packed(name: str) -> None:
    model = ModelConfig("tiny", 24, config=SMALL_WITHOUT_DROPOUT)
    partition = ComponentConfig("uniform", {"clients": 3})
    federation = federate_corpus(model, load_toy_corpus("toy-tagging"), partition, Seed(7), public_share=0.25)
    assert_packing_changes_nothing(federation, make_algorithm(name, solver=SOLVER))


@pytest.mark.parametrize("name", [name for name in BUILTIN_CORPORA if name.startswith("toy-")])
def test_every_task_can_be_packed(name: str) -> None:
    model = ModelConfig("tiny", 80, config=NO_DROPOUT)
    partition = ComponentConfig("uniform", {"clients": 3})
    federation = federate_corpus(model, load_toy_corpus(name), partition, Seed(7))
    assert_packing_changes_nothing(federation, ALGORITHMS["fedavg"](solver=SOLVER))
