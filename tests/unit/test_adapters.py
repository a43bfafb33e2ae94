"""LoRA adapters: the model is stored once and frozen; adapters and head are trained, sent, packed and finally merged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tests.job_runs import assert_trained_alone, run_packed
from tests.sizes import SMALL

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.commands.model_export import save_model
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit
from motet.learning.solver import Solver
from motet.models.model_config import AdapterConfig, ModelConfig

CPU = torch.device("cpu")


@pytest.fixture
def lora_federation(corpus: Corpus) -> Federation:
    model = ModelConfig("tiny", 24, adapter=AdapterConfig(rank=4), config=SMALL)
    return federate_corpus(model, corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7))


def make_jobs(federation: Federation) -> list[Fit]:
    clients = [federation.participant(client) for client in federation.clients]
    solver = Solver(optimizer="sgd", lr=0.2, batch=8, epochs=2)
    return [
        Fit(c.model, c.model.initial_params, c.split("train"), c.task.objective, solver, 5 + i)
        for i, c in enumerate(clients)
    ]


def test_only_adapters_and_the_head_are_trained(lora_federation: Federation) -> None:
    model = lora_federation.model
    roles = dict(zip(model.layout.names, model.layout.roles, strict=True))
    assert {role.split(".")[0] for name, role in roles.items() if "lora_" in name} == {"layers"}
    assert all("lora_" in name or role.startswith(("head", "pooler")) for name, role in roles.items())
    assert model.layout.size < sum(p.numel() for p in model.module.parameters()) / 2


def test_the_initial_adapters_follow_from_the_seed(lora_federation: Federation, corpus: Corpus) -> None:
    model = ModelConfig("tiny", 24, adapter=AdapterConfig(rank=4), config=SMALL)
    again = federate_corpus(model, corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7))
    assert torch.equal(again.model.initial_params.flat, lora_federation.model.initial_params.flat)


def test_adapters_can_be_packed(lora_federation: Federation) -> None:
    jobs = make_jobs(lora_federation)
    results, executor = run_packed(jobs, width=4)
    (choice,) = executor.packing_choices.values()
    assert choice.mode == "packed_layers", choice.rejections
    assert_trained_alone(results, jobs, tolerance=1e-5)


def test_an_exported_model_has_no_adapters_and_gives_the_same_logits(
    lora_federation: Federation, tmp_path: Path
) -> None:
    model, params = lora_federation.model, SerialExecutor(CPU).run(make_jobs(lora_federation)[0]).params
    save_model(lora_federation, params, tmp_path)
    exported = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert not any("lora" in name for name, _ in exported.named_parameters())
    batch = lora_federation.features.batch(np.arange(5))
    batch.pop("labels")
    with torch.no_grad():
        expected = model.with_params(params)(**batch)["logits"]
        assert torch.allclose(exported(**batch)["logits"], expected, atol=1e-5)
        untrained = model.with_params(model.initial_params)(**batch)["logits"]
    assert not torch.allclose(expected, untrained, atol=1e-3)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            ModelConfig("tiny", 24, adapter=AdapterConfig(rank=200), config=SMALL),
            r"model\.adapter\.rank is 200, but the smallest",
        ),
        (ModelConfig("bilstm", 24, adapter=AdapterConfig(rank=2)), "has no linear layers to adapt"),
    ],
)
def test_invalid_ranks_and_models_are_rejected(corpus: Corpus, model: ModelConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        federate_corpus(model, corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7))
