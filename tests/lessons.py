"""Clients' lessons and contrasts on a tiny backbone: what their packed training is tried on."""

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
from motet.models.load_model import ModelConfig
from tests.sizes import SMALL

SIZES = (9, 4, 14, 1)
Make = Callable[[Federation, Solver, int], list[Fit]]


def readers_of_lessons() -> Federation:
    model = ModelConfig("mixed:tiny", 40, config=SMALL)
    task = ComponentConfig("qa", {"max_question_tokens": 8})
    return federate_corpus(model, toy_qa(60, 8), ComponentConfig("uniform", {"clients": 2}), Seed(1), task=task)


def shares(readers: Federation) -> list[Examples]:
    texts = readers.participant(readers.clients[0]).split("train")
    cuts = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
    return [texts.select(places) for places in cuts]


def lessons(make: Any, objective: Any) -> Make:
    def made(readers: Federation, solver: Solver, turn: int = 0) -> list[Fit]:
        model, marks = readers.model, SpecialTokens.from_tokenizer(readers.model.tokenizer)
        parts = [make(part, marks, np.random.default_rng(10 * turn + i)) for i, part in enumerate(shares(readers))]
        return [
            Fit(model, model.initial_params, part, objective, solver, 5 + i + 10 * turn) for i, part in enumerate(parts)
        ]

    return made


def contrasts(by_number: bool) -> Make:
    def made(readers: Federation, solver: Solver, turn: int = 0) -> list[Fit]:
        model, objective = readers.model, ContrastiveTask(readers.participant(readers.clients[0]).task.objective)
        rng, wide = Seed(turn).torch(), SMALL["hidden_size"]
        states, tokens = (
            torch.randn(8, 6, wide, generator=rng).half(),
            torch.randint(5, 60, (8, 6), generator=rng).int(),
        )
        jobs = []
        for i, part in enumerate(shares(readers)):
            near, far = torch.randn(8, wide, generator=rng), torch.randn(8, 3, wide, generator=rng)
            beside = ExtraExamples(
                Examples.from_columns(states=states, tokens=tokens, positives=near, negatives=far), by_number
            )
            jobs.append(
                Fit(model, model.initial_params, part, objective, solver, 5 + i + 10 * turn, extra_examples=beside)
            )
        return jobs

    return made


KINDS: dict[str, Make] = {
    "masked words": lessons(mask_tokens, MaskedLanguageModeling()),
    "garbled texts": lessons(corrupt_texts, DenoisingReconstruction()),
    "drawn neighbours": contrasts(False),
    "numbered neighbours": contrasts(True),
}
