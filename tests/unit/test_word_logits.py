"""Distillation of taggers: logits refer to words, whatever tokenizer a model has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.runs import run_rounds
from tests.sizes import NO_DROPOUT, SMALL

from motet.algorithms import adafd, dsfl, fedavg_logits, fedkd, mhat
from motet.algorithms.distillation import check_logits, count_classes
from motet.algorithms.logit_pooling import (
    Pooling,
    TopLogits,
    divide_by_seen_weight,
    pool_logits,
    pool_word_logits,
    restore_logits,
    truncate_logits,
)
from motet.algorithms.public_data import PublicWords, get_public_data
from motet.core.errors import RunError
from motet.core.params import Params
from motet.datasets.corpus import Corpus
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.objectives.distillation_losses import KLDivergence, LogitSquaredError, TeacherCrossEntropy
from motet.learning.solver import Solver

TEXTS = [
    ["Ann", "met", "Ben", "drizzlingly"], ["nobody", "came"], [],
    ["Ann", "snoozletimes", "in", "Oslo", "and", "Ben", "does", "too"],
    ["in", "Oslo"], ["Ben", "ran"], ["Ann", "ran", "home"], ["we", "met", "Ann"], ["Oslo"], ["Ben"],
]  # fmt: skip
TAGS = {"Ann": "B-PER", "Ben": "B-PER", "Oslo": "B-LOC"}
PUBLIC_ROWS = np.array([3, 2, 1, 0])  # texts with 8, 0, 2 and 4 words
NUM_WORDS = 14


@pytest.fixture(scope="module")
def taggers() -> Federation:
    """Two clients whose tokens are words and who see four words of a text, and two whose tokens are subwords."""
    tags = [[TAGS.get(word, "O") for word in text] for text in TEXTS]
    corpus = Corpus("names", "tagging", {"words": TEXTS * 2, "tags": tags * 2}, 16)
    subword_model = {
        "name": "minilm",
        "max_tokens": 24,
        "from_scratch": True,
        "config": {**SMALL, "num_attention_heads": 2},
    }
    settings = {
        "data": {"name": "toy-tagging", "accept": ["leak"]},  # the test texts are training texts too
        "model": {"name": "tiny", "max_tokens": 24, "config": {**SMALL, **NO_DROPOUT}},
        "groups": [
            {"clients": 2, "model": {"name": "tiny", "max_tokens": 6, "config": SMALL}},
            {"clients": 2, "model": subword_model},
        ],
    }
    federation = build_federation(RunConfig.from_settings("taggers", settings), lambda *_: corpus)
    groups = tuple(replace(group, public_rows=PUBLIC_ROWS) for group in federation.groups)
    return replace(federation, groups=groups, server=replace(federation.server, public_rows=PUBLIC_ROWS))


def public_words(federation: Federation, client_index: int) -> PublicWords:
    public = get_public_data(federation.context(federation.clients[client_index], 0, ""))
    assert isinstance(public, PublicWords)
    return public


# ---- words and tokens ------------------------------------------------------------------------------------------------


def test_words_have_the_same_index_for_all_tokenizers(taggers: Federation) -> None:
    whole_words, subwords = public_words(taggers, 0), public_words(taggers, 2)
    server = get_public_data(taggers.server_context(0))
    assert whole_words.num_rows == subwords.num_rows == server.num_rows == NUM_WORDS
    input_ids = subwords.examples.features.columns["input_ids"]
    tokenizer = taggers.groups[1].model.tokenizer
    tokens = [tokenizer.convert_ids_to_tokens(list(input_ids[int(row)])) for row in PUBLIC_ROWS]
    assert any(token.startswith("##") for text in tokens for token in text)
    words = [word.lower() for row in PUBLIC_ROWS for word in TEXTS[row]]
    text, token, word = subwords.word_positions
    assert word.tolist() == list(range(NUM_WORDS))
    for i, j, k in zip(text.tolist(), token.tolist(), word.tolist(), strict=True):
        assert words[k].startswith(tokens[i][j])
    first_four_of_eight, others = [0, 1, 2, 3], [8, 9, 10, 11, 12, 13]
    assert whole_words.word_positions[2].tolist() == first_four_of_eight + others


def test_the_logits_of_a_word_are_those_of_its_first_token(taggers: Federation) -> None:
    public = public_words(taggers, 0)
    num_tokens, num_classes = 6, public.num_classes
    predictions = torch.arange(4 * num_tokens * num_classes).float().view(4, -1)
    logits = public.to_logits({"logits": predictions})
    text, token, word = public.word_positions
    assert torch.equal(logits["logits"][word], predictions.view(4, num_tokens, num_classes)[text, token])
    assert logits["seen"].tolist() == [1.0] * 4 + [0.0] * 4 + [1.0] * 6
    assert not logits["logits"][4:8].any()


def test_a_student_learns_from_the_words_that_it_and_the_teacher_see(taggers: Federation) -> None:
    public = public_words(taggers, 0)
    text, token, word = public.word_positions
    logits = torch.randn(NUM_WORDS, public.num_classes)
    all_seen = public.with_teacher(Params.from_tensors({"logits": logits, "seen": torch.ones(NUM_WORDS)}))
    assert torch.equal(all_seen.extra_columns["teacher_logits"][text, token], logits[word])
    assert all_seen.extra_columns["teacher_mask"].sum(1).tolist() == [4, 0, 2, 4]
    every_other = torch.tensor([1.0, 0.0] * (NUM_WORDS // 2))
    half_seen = public.with_teacher(Params.from_tensors({"logits": logits, "seen": every_other}))
    assert half_seen.extra_columns["teacher_mask"].sum(1).tolist() == [2, 0, 1, 2]


def test_classes_are_counted_by_words(taggers: Federation) -> None:
    ctx = taggers.context(taggers.clients[0], 0, "")
    rows = ctx.participant.split("train").rows
    tags = [TAGS.get(word, "O") for row in rows for word in TEXTS[int(row) % 10][:4]]
    assert list(count_classes(ctx)) == [tags.count(label) for label in taggers.server.task.labels]


# ---- pooling ---------------------------------------------------------------------------------------------------------


def test_a_word_is_pooled_over_the_clients_that_see_it() -> None:
    first, second = torch.randn(3, 2), torch.randn(3, 2)
    clients = [
        Params.from_tensors({"logits": first, "seen": torch.tensor([1.0, 1, 0])}),
        Params.from_tensors({"logits": second, "seen": torch.tensor([1.0, 0, 0])}),
    ]
    weights = torch.tensor([0.25, 0.75])
    pooled = pool_word_logits(Pooling(), clients, weights)
    assert pooled["seen"].tolist() == [1, 1, 0]
    assert torch.allclose(pooled["logits"][0], 0.25 * first[0] + 0.75 * second[0])
    assert torch.allclose(pooled["logits"][1], first[1])
    assert pooled.is_finite()
    total = sum(w * c["logits"] * c["seen"].unsqueeze(1) for w, c in zip(weights, clients, strict=True))
    seen_weight = sum(w * c["seen"] for w, c in zip(weights, clients, strict=True))
    assert torch.allclose(divide_by_seen_weight(Pooling(), total, seen_weight).flat, pooled.flat)


def test_words_that_all_clients_see_are_pooled_like_texts() -> None:
    logits, weights = [torch.randn(3, 2), torch.randn(3, 2)], torch.tensor([0.25, 0.75])
    all_seen = [Params.from_tensors({"logits": each, "seen": torch.ones(3)}) for each in logits]
    votes = Pooling("votes")
    assert torch.allclose(pool_word_logits(votes, all_seen, weights)["logits"], pool_logits(votes, logits, weights))


def test_truncated_logits_keep_which_words_were_seen() -> None:
    logits = Params.from_tensors({"logits": torch.randn(5, 6), "seen": torch.tensor([1.0, 0, 1, 1, 0])})
    truncated = truncate_logits(logits, 2)
    assert isinstance(truncated, TopLogits)
    restored = restore_logits("a", truncated, 6)
    assert torch.equal(restored["seen"], logits["seen"])
    assert restored["logits"].shape == (5, 6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seen": 1e6}, "`seen` from 1e.06 to 1e.06; expected numbers from 0 to 1"),
        ({"seen": -1.0}, "`seen` from -1 to -1; expected numbers from 0 to 1"),
        ({"seen": None}, r"sent logits with logits \[.*\]; expected finite numbers with logits .*, seen"),
    ],
)
def test_invalid_replies_are_rejected(change: dict[str, float | None], message: str, taggers: Federation) -> None:
    """Otherwise one client could take all the weight, or end the round for everyone."""
    server = taggers.server_context(0)
    valid = get_public_data(server).blank_logits().tensors()
    invalid = {
        name: torch.full_like(tensor, change[name]) if name in change else tensor
        for name, tensor in valid.items()
        if change.get(name, 0) is not None
    }
    assert check_logits("a client", Params.from_tensors(valid), server).is_finite()
    with pytest.raises(RunError, match=message):
        check_logits("a client", Params.from_tensors(invalid), server)


# ---- losses and whole rounds -----------------------------------------------------------------------------------------


class ConstantModel:
    """A model that always returns the same logits."""

    module = None

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits

    def __call__(self, batch: Any) -> dict[str, torch.Tensor]:
        return {"logits": self.logits}


@pytest.mark.parametrize(
    "objective",
    [
        KLDivergence(2.0),
        LogitSquaredError(),
        LogitSquaredError(summed=True),
        TeacherCrossEntropy(),
        TeacherCrossEntropy(hard=True),
    ],
)
@pytest.mark.parametrize("padding", [0, 3])
def test_the_loss_of_a_text_is_the_mean_over_its_masked_tokens(objective: Any, padding: int) -> None:
    student, teacher = torch.randn(3, 5, 4), torch.randn(3, 5, 4)
    mask = torch.tensor([[1.0, 0, 1, 1, 0], [0.0, 0, 0, 0, 0], [0.0, 1, 0, 0, 0]])
    padded = torch.cat([student, torch.randn(3, padding, 4)], 1)
    losses, weights = objective.losses(ConstantModel(padded), {"teacher_logits": teacher, "teacher_mask": mask})
    token_losses, _ = objective.losses(ConstantModel(student[mask > 0]), {"teacher_logits": teacher[mask > 0]})
    assert weights.tolist() == [3, 0, 1]
    assert torch.allclose(losses, torch.stack([token_losses[:3].mean(), torch.tensor(0.0), token_losses[3]]))


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [(adafd, {}), (fedavg_logits, {}), (dsfl, {}), (dsfl, {"variant": "original"}), (mhat, {}), (fedkd, {})],
)
def test_taggers_with_different_tokenizers_learn_from_each_other(
    algorithm: Any, options: dict[str, Any], taggers: Federation
) -> None:
    sgd = Solver(optimizer="sgd", lr=0.1, batch=4)
    gathered = run_rounds(taggers, algorithm(sgd, **options), 1)
    summed = run_rounds(taggers, algorithm(sgd, **options, exchange="sum"), 1)
    assert torch.allclose(gathered.state.params.flat, summed.state.params.flat, atol=1e-5)
    assert not torch.equal(gathered.state.params.flat, taggers.model.initial_params.flat)
    logits = NUM_WORDS * (len(taggers.server.task.labels) + 1) * 4
    success_report = 8
    teaches = algorithm is not fedkd
    assert gathered.engine.mailbox.traffic.payload_up == 4 * (logits + teaches * success_report)
    assert gathered.engine.mailbox.traffic.payload_down == 4 * teaches * logits
    assert set(gathered.evaluator.evaluate_split("global").scores) >= {"f1", "accuracy"}
