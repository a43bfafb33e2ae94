"""Preference tuning: the loss is that of DPO, the reference is the untouched model, and its numbers are computed once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.job_runs import assert_trained_alone, run_packed

from motet.core.errors import ConfigError, DataError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import DataConfig, load_corpus
from motet.datasets.toy_corpora import toy_preference
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.data.features import Ragged
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.jobs import Fit, Infer
from motet.learning.objectives.direct_preference import LogRatios
from motet.learning.solver import Solver
from motet.models.model_config import AdapterConfig, ModelConfig
from motet.tasks.preference import preference

CPU = torch.device("cpu")
BETA = 0.3
SOLVER = Solver(optimizer="sgd", lr=0.5, batch=4, steps=3)


def make_federation(corpus: Corpus, max_tokens: int = 32) -> Federation:
    model = ModelConfig("tiny", max_tokens, adapter=AdapterConfig(rank=4), config={"n_embd": 32, "n_layer": 1})
    task = ComponentConfig("preference", {"beta": BETA})
    return federate_corpus(model, corpus, ComponentConfig("uniform", {"clients": 2}), Seed(0), task=task)


@pytest.fixture(scope="module")
def federation() -> Federation:
    return make_federation(toy_preference(train=24, test=8))


def trained_params(federation: Federation) -> Params:
    noise = torch.randn(federation.model.layout.size, generator=torch.Generator().manual_seed(1))
    return Params(federation.model.layout, federation.model.initial_params.flat + 0.1 * noise)


def run(work: Any) -> tuple[Any, list[Any]]:
    """Run a generator of jobs; return its result and its jobs."""
    executor, jobs = SerialExecutor(CPU), []
    try:
        jobs.append(next(work))
        while True:
            jobs.append(work.send(executor.run(jobs[-1])))
    except StopIteration as end:
        return end.value, jobs


def log_likelihood(module: Any, prompt: list[int], answer: list[int]) -> float:
    """Compute the log-likelihood of an answer token by token."""
    with torch.no_grad():
        logits = module(input_ids=torch.tensor([[*prompt, *answer]]))["logits"][0].double().log_softmax(-1)
    return sum(float(logits[len(prompt) - 1 + i, token]) for i, token in enumerate(answer))


def test_the_loss_is_the_formula_of_dpo(federation: Federation) -> None:
    params, features = trained_params(federation), federation.server.features
    context = federation.server_context(0)
    result, _ = run(context.evaluate(params, "global", per_example=True))
    modules = [federation.model.with_params(p) for p in (params, federation.model.initial_params)]
    losses = []
    for row in context.participant.split("global").rows:
        ratios = []
        for module in modules:
            chosen, rejected = (
                log_likelihood(
                    module,
                    features.columns[f"{prefix}input_ids"][row][: features.columns[f"{prefix}completion_start"][row]].tolist(),
                    features.columns[f"{prefix}labels"][row].tolist(),
                )
                for prefix in ("", "rejected_")
            )  # fmt: skip
            ratios.append(chosen - rejected)
        margin = BETA * (ratios[0] - ratios[1])
        losses.append((np.log1p(np.exp(-margin)), margin))
    expected = np.array(losses)
    assert result.scores["loss"] == pytest.approx(expected[:, 0].mean(), rel=1e-5)
    assert result.scores["margin"] == pytest.approx(expected[:, 1].mean(), rel=1e-4)
    assert result.scores["accuracy"] == pytest.approx((expected[:, 1] > 0).mean())


def test_the_untouched_model_prefers_nothing(federation: Federation) -> None:
    result, _ = run(federation.server_context(0).evaluate(federation.model.initial_params, "global"))
    assert result.scores == pytest.approx({"accuracy": 0.5, "margin": 0.0, "loss": np.log(2)}, abs=1e-6)


def test_the_reference_is_computed_once() -> None:
    federation = make_federation(toy_preference(train=24, test=8))
    client = federation.clients[0]
    kinds = []
    for round in range(2):
        context = federation.context(client, round, "fedavg.train")
        _, jobs = run(context.fit(trained_params(federation), SOLVER))
        kinds.append([type(job) for job in jobs])
    assert kinds == [[Infer, Fit], [Fit]]


def test_packed_clients_train_like_one_after_another(federation: Federation) -> None:
    jobs = []
    for client in federation.clients:
        _, client_jobs = run(federation.context(client, 0, "fedavg.train").fit(trained_params(federation), SOLVER))
        jobs.append(client_jobs[-1])
    results, _ = run_packed(jobs, width=2)
    assert_trained_alone(results, jobs, tolerance=1e-4)


def test_both_answers_follow_the_same_truncated_prompt() -> None:
    columns = {"prompt": ["a b c d e f g h"] * 4, "chosen": ["x"] * 4, "rejected": ["y y y"] * 4}
    federation = make_federation(Corpus("toy", "preference", columns, 2), max_tokens=8)
    features = federation.server.features
    chosen, rejected = features.columns["input_ids"], features.columns["rejected_input_ids"]
    assert isinstance(chosen, Ragged) and isinstance(rejected, Ragged)
    assert federation.model.tokenizer.decode(rejected[0]) == "[CLS] g h [SEP] y y y [SEP]"
    assert federation.model.tokenizer.decode(chosen[0]) == "[CLS] g h [SEP] x [SEP]"
    assert federation.server.notes[0].startswith("4 of 4 prompts")


def test_conversations_that_end_with_the_answers_are_read(tmp_path: Path) -> None:
    def chat(answer: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": "hi"}, {"role": "assistant", "content": answer}]

    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"chosen": chat(f"yes {i}"), "rejected": chat("no")}) + "\n" for i in range(4)))
    corpus = load_corpus(DataConfig(path=str(path)), Seed(0))
    assert corpus.task == "preference"
    assert set(corpus.column("prompt")) == {"hi"}
    assert set(corpus.column("rejected")) == {"no"}
    path.write_text(json.dumps({"prompt": "hi", "chosen": "", "rejected": "no"}) + "\n")
    with pytest.raises(DataError, match="line 1: column 'chosen' is empty"):
        load_corpus(DataConfig(path=str(path)), Seed(0))


def test_beta_must_be_positive() -> None:
    with pytest.raises(ConfigError, match=r"task\.beta is 0; it must be above 0"):
        preference(beta=0)
    assert preference(beta=0.2).objective.beta == 0.2
    assert preference().reference_readout == LogRatios()
