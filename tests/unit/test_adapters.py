"""Adapters: the model is held once and frozen; A, B and the head are what is trained, sent, packed and at last merged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tests.sizes import SMALL

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.commands.model_export import save_model
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit
from motet.learning.solver import Solver
from motet.models.load_model import ModelConfig

CPU = torch.device("cpu")


@pytest.fixture
def adapted(corpus: Corpus) -> Federation:
    model = ModelConfig("tiny", 24, lora=4, config=SMALL)
    return federate_corpus(model, corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7))


def jobs_of(federation: Federation) -> list[Fit]:
    sites = [federation.participant(client) for client in federation.clients]
    solver = Solver(optimizer="sgd", lr=0.2, batch=8, epochs=2)
    return [
        Fit(s.model, s.model.initial_params, s.split("train"), s.task.objective, solver, 5 + i)
        for i, s in enumerate(sites)
    ]


def test_only_adapters_and_the_head_are_trained(adapted: Federation) -> None:
    layout = adapted.model.layout
    assert {p.split(".")[0] for n, p in zip(layout.names, layout.roles, strict=True) if "lora_" in n} == {"layers"}
    assert all(
        "lora_" in n or p.startswith(("head", "pooler")) for n, p in zip(layout.names, layout.roles, strict=True)
    )
    everything = sum(p.numel() for p in adapted.model.module.parameters())
    assert layout.size < everything / 2


def test_everybody_who_loads_it_has_the_same_adapters(adapted: Federation, corpus: Corpus) -> None:
    again = federate_corpus(
        ModelConfig("tiny", 24, lora=4, config=SMALL), corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7)
    )
    assert torch.equal(again.model.initial_params.flat, adapted.model.initial_params.flat)


def test_adapters_pack(adapted: Federation) -> None:
    jobs = jobs_of(adapted)
    executor = PackedExecutor(CPU, width=4, use_bf16=False)
    for i, job in enumerate(jobs):
        executor.submit(i, job)
    found = dict(executor.wait_completed())
    (way,) = executor.packing_choices.values()
    assert way.mode == "packed_layers", way.rejections
    for i, job in enumerate(jobs):
        want = SerialExecutor(CPU).run(job).params.flat
        moved = (want - job.start.flat).norm()
        assert moved > 0
        assert (found[i].params.flat - want).norm() / moved < 1e-5


def test_an_export_is_a_plain_model_that_says_the_same(adapted: Federation, tmp_path: Path) -> None:
    end = SerialExecutor(CPU).run(jobs_of(adapted)[0]).params
    save_model(adapted, end, tmp_path)
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert not any("lora" in name for name, _ in plain.named_parameters())
    batch = adapted.features.batch(np.arange(5))
    batch.pop("labels")
    with torch.no_grad():
        want = adapted.model.with_params(end)(**batch)["logits"]
        assert torch.allclose(plain(**batch)["logits"], want, atol=1e-5)
        fresh = adapted.model.with_params(adapted.model.initial_params)(**batch)["logits"]
    assert not torch.allclose(want, fresh, atol=1e-3)


def test_ranks_that_make_no_sense_are_refused(corpus: Corpus) -> None:
    with pytest.raises(ConfigError, match=r"model\.lora is -2"):
        federate_corpus(ModelConfig("tiny", 24, lora=-2), corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7))
    with pytest.raises(ConfigError, match="has no layers with products to adapt"):
        federate_corpus(ModelConfig("bilstm", 24, lora=2), corpus, ComponentConfig("uniform", {"clients": 3}), Seed(7))
