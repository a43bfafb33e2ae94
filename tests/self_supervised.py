"""Self-supervised and contrastive training jobs on a tiny multi-task model, to test packed training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from motet.core.rng import Seed
from motet.datasets.toy_corpora import toy_qa
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.data.denoising import SpecialTokens, corrupt_texts, mask_tokens
from motet.learning.data.features import Examples
from motet.learning.jobs import ExtraExamples, Fit
from motet.learning.objectives.atc_objectives import ContrastiveTask, DenoisingReconstruction, MaskedLanguageModeling
from motet.learning.solver import Solver
from motet.models.model_config import ModelConfig
from tests.sizes import SMALL

CLIENT_SIZES = (9, 4, 14, 1)
MakeJobs = Callable[[Federation, Solver, int], list[Fit]]  # the last argument is the round


def multitask_federation() -> Federation:
    model = ModelConfig("mixed:tiny", 40, config=SMALL)
    task = ComponentConfig("qa", {"max_question_tokens": 8})
    return federate_corpus(model, toy_qa(60, 8), ComponentConfig("uniform", {"clients": 2}), Seed(1), task=task)


def client_examples(federation: Federation) -> list[Examples]:
    texts = federation.participant(federation.clients[0]).split("train")
    indices = np.split(np.arange(sum(CLIENT_SIZES)), np.cumsum(CLIENT_SIZES)[:-1])
    return [texts.select(client) for client in indices]


def self_supervised(make_examples: Any, objective: Any) -> MakeJobs:
    def make_jobs(federation: Federation, solver: Solver, round: int = 0) -> list[Fit]:
        model, tokens = federation.model, SpecialTokens.from_tokenizer(federation.model.tokenizer)
        examples = [
            make_examples(client, tokens, np.random.default_rng(10 * round + i))
            for i, client in enumerate(client_examples(federation))
        ]
        return [
            Fit(model, model.initial_params, client, objective, solver, 5 + i + 10 * round)
            for i, client in enumerate(examples)
        ]

    return make_jobs


def contrastive(by_index: bool) -> MakeJobs:
    def make_jobs(federation: Federation, solver: Solver, round: int = 0) -> list[Fit]:
        model = federation.model
        objective = ContrastiveTask(federation.participant(federation.clients[0]).task.objective)
        rng, width = Seed(round).torch(), SMALL["hidden_size"]
        states = torch.randn(8, 6, width, generator=rng).half()
        tokens = torch.randint(5, 60, (8, 6), generator=rng).int()
        jobs = []
        for i, examples in enumerate(client_examples(federation)):
            positives, negatives = torch.randn(8, width, generator=rng), torch.randn(8, 3, width, generator=rng)
            columns = {"states": states, "tokens": tokens, "positives": positives, "negatives": negatives}
            extra = ExtraExamples(Examples.from_columns(**columns), by_index)
            seed = 5 + i + 10 * round
            jobs.append(Fit(model, model.initial_params, examples, objective, solver, seed, extra_examples=extra))
        return jobs

    return make_jobs


JOB_KINDS: dict[str, MakeJobs] = {
    "masked tokens": self_supervised(mask_tokens, MaskedLanguageModeling()),
    "denoising": self_supervised(corrupt_texts, DenoisingReconstruction()),
    "random neighbors": contrastive(by_index=False),
    "neighbors by index": contrastive(by_index=True),
}
