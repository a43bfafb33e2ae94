"""Distillation of taggers: opinions are of words, whatever tokens a model cuts them into."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import RunRounds
from tests.sizes import NO_DROPOUT, SMALL

from motet.algorithms import adafd, dsfl, fedavg_logits, fedkd, mhat
from motet.algorithms.distillation import checked, class_counts
from motet.algorithms.logit_pooling import Pool, TopClasses, of_the_seeing, pooled, pooled_words, shortened, whole
from motet.algorithms.public_data import WordsOfTexts, public_of
from motet.core.errors import RunError
from motet.core.params import Params
from motet.datasets.corpus import Corpus
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.objectives.distillation_losses import KLDivergence, LogitSquaredError, TeacherCrossEntropy
from motet.learning.solver import Solver

METHODS: list[tuple[Any, dict[str, Any]]] = [
    (adafd, {}), (fedavg_logits, {}), (dsfl, {}), (dsfl, {"variant": "original"}), (mhat, {}), (fedkd, {}),
]  # fmt: skip
WORDS = [
    ["Ann", "met", "Ben", "drizzlingly"], ["nobody", "came"], [],
    ["Ann", "snoozletimes", "in", "Oslo", "and", "Ben", "does", "too"],
    ["in", "Oslo"], ["Ben", "ran"], ["Ann", "ran", "home"], ["we", "met", "Ann"], ["Oslo"], ["Ben"],
]  # fmt: skip
TAGGED = {"Ann": "B-PER", "Ben": "B-PER", "Oslo": "B-LOC"}
PUBLIC = np.array([3, 2, 1, 0])


@pytest.fixture(scope="module")
def taggers() -> Federation:
    """Two clients whose tokens are words, of which they read four, two whose tokens are pieces of words; four public texts,
    the second of them empty."""
    columns = {"words": WORDS * 2, "tags": [[TAGGED.get(w, "O") for w in row] for row in WORDS] * 2}
    corpus = Corpus("own", "tagging", columns, 16)
    groups = [
        {"clients": 2, "model": {"name": "tiny", "max_tokens": 6, "config": SMALL}},
        {
            "clients": 2,
            "model": {
                "name": "minilm",
                "max_tokens": 24,
                "from_scratch": True,
                "config": {**SMALL, "num_attention_heads": 2},
            },
        },
    ]
    top = {
        "data": {"name": "toy-tagging"},
        "model": {"name": "tiny", "max_tokens": 24, "config": {**SMALL, **NO_DROPOUT}},
    }
    made = build_federation(RunConfig.from_settings("taggers", {**top, "groups": groups}), lambda *_: corpus)
    opened = tuple(replace(group, public_rows=PUBLIC) for group in made.groups)
    return replace(made, groups=opened, server=replace(made.server, public_rows=PUBLIC))


def test_words_stand_at_the_same_places_for_all_whatever_their_tokens(taggers: Federation) -> None:
    short, pieces = (public_of(taggers.context(taggers.clients[i], 0, "")) for i in (0, 2))
    assert isinstance(short, WordsOfTexts)
    assert isinstance(pieces, WordsOfTexts)
    assert short.count == pieces.count == public_of(taggers.server_context(0)).count == 8 + 0 + 2 + 4
    ids = pieces.examples.features.columns["input_ids"]
    tokens = [taggers.groups[1].model.tokenizer.convert_ids_to_tokens(list(ids[int(row)])) for row in PUBLIC]
    assert any(token.startswith("##") for row in tokens for token in row)
    spoken = [word.lower() for row in PUBLIC for word in WORDS[row]]
    text, token, word = pieces.places
    assert word.tolist() == list(range(14))
    for i, j, k in zip(text.tolist(), token.tolist(), word.tolist(), strict=True):
        assert spoken[k].startswith(tokens[i][j])
    assert short.places[2].tolist() == [
        0,
        1,
        2,
        3,
        8,
        9,
        10,
        11,
        12,
        13,
    ]  # the first four words of the eight, then the others


def test_an_opinion_is_what_the_first_token_of_a_word_says(taggers: Federation) -> None:
    public = public_of(taggers.context(taggers.clients[0], 0, ""))
    assert isinstance(public, WordsOfTexts)
    tokens, classes = 6, public.classes
    said = torch.arange(4 * tokens * classes).float().view(4, -1)
    found = public.opinions({"logits": said})
    text, token, word = public.places
    assert torch.equal(found["logits"][word], said.view(4, tokens, classes)[text, token])
    assert found["seen"].tolist() == [1.0] * 4 + [0.0] * 4 + [1.0] * 6
    assert not found["logits"][4:8].any()
    lessons = public.lessons(Params.from_tensors({"logits": found["logits"], "seen": torch.ones(14)}))
    assert torch.equal(lessons.extra_columns["teacher_logits"][text, token], found["logits"][word])
    assert lessons.extra_columns["teacher_mask"].sum(1).tolist() == [4, 0, 2, 4]
    half = public.lessons(Params.from_tensors({"logits": found["logits"], "seen": torch.tensor([1.0, 0.0] * 7)}))
    assert half.extra_columns["teacher_mask"].sum(1).tolist() == [2, 0, 1, 2]


def test_a_word_is_pooled_over_those_who_see_it() -> None:
    one, two = torch.randn(3, 2), torch.randn(3, 2)
    opinions = [
        Params.from_tensors({"logits": z, "seen": torch.tensor(s)}) for z, s in ((one, [1.0, 1, 0]), (two, [1.0, 0, 0]))
    ]
    shares = torch.tensor([0.25, 0.75])
    found = pooled_words(Pool(), opinions, shares)
    assert found["seen"].tolist() == [1, 1, 0]
    assert torch.allclose(found["logits"][0], 0.25 * one[0] + 0.75 * two[0])
    assert torch.allclose(found["logits"][1], one[1])
    assert found.is_finite()
    votes = [o["logits"] * o["seen"].unsqueeze(1) for o in opinions]
    summed = of_the_seeing(
        Pool(), 0.25 * votes[0] + 0.75 * votes[1], 0.25 * opinions[0]["seen"] + 0.75 * opinions[1]["seen"]
    )
    assert torch.allclose(summed.flat, found.flat)
    everything = [Params.from_tensors({"logits": z, "seen": torch.ones(3)}) for z in (one, two)]
    assert torch.allclose(
        pooled_words(Pool("votes"), everything, shares)["logits"], pooled(Pool("votes"), [one, two], shares)
    )


def test_the_best_classes_of_a_word_still_say_which_words_were_seen() -> None:
    opinions = Params.from_tensors({"logits": torch.randn(5, 6), "seen": torch.tensor([1.0, 0, 1, 1, 0])})
    short = shortened(opinions, 2)
    assert isinstance(short, TopClasses)
    assert torch.equal(whole(short)["seen"], opinions["seen"])
    assert whole(short)["logits"].shape == (5, 6)


class Speaking:
    """A model that says what it is told to."""

    module = None

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits

    def __call__(self, batch: Any) -> dict[str, torch.Tensor]:
        return {"logits": self.logits}


@pytest.mark.parametrize(
    "objective",
    [KLDivergence(2.0), LogitSquaredError(), LogitSquaredError(True), TeacherCrossEntropy(), TeacherCrossEntropy(True)],
)
@pytest.mark.parametrize("wider", [0, 3])
def test_a_text_counts_by_its_taught_tokens_as_if_each_were_a_text(objective: Any, wider: int) -> None:
    said, teacher = torch.randn(3, 5, 4), torch.randn(3, 5, 4)
    taught = torch.tensor([[1.0, 0, 1, 1, 0], [0.0, 0, 0, 0, 0], [0.0, 1, 0, 0, 0]])
    padded = torch.cat(
        [said, torch.randn(3, wider, 4)], 1
    )  # as wide as the widest of all texts, or of the device's steps
    losses, worth = objective.losses(Speaking(padded), {"teacher_logits": teacher, "teacher_mask": taught})
    single, _ = objective.losses(Speaking(said[taught > 0]), {"teacher_logits": teacher[taught > 0]})
    assert worth.tolist() == [3, 0, 1]
    assert torch.allclose(losses, torch.stack([single[:3].mean(), torch.tensor(0.0), single[3]]))


@pytest.mark.parametrize(("maker", "options"), METHODS)
def test_unlike_taggers_teach_one_another(
    maker: Any, options: dict[str, Any], taggers: Federation, rounds: RunRounds
) -> None:
    """Every method, with tokens that do not match and words that some do not see; a sum is all that is needed."""
    plain = Solver(optimizer="sgd", lr=0.1, batch=4)
    read = rounds(taggers, maker(plain, **options), 1)
    summed = rounds(taggers, maker(plain, **options, exchange="sum"), 1)
    assert torch.allclose(read.state.params.flat, summed.state.params.flat, atol=1e-5)
    assert not torch.equal(read.state.params.flat, taggers.model.initial_params.flat)
    words, classes = 14, len(taggers.server.task.labels)
    each = words * (classes + 1) * 4
    assert read.mailbox.traffic.payload_up == 4 * (each + (0 if maker is fedkd else 8))
    assert read.mailbox.traffic.payload_down == (0 if maker is fedkd else 4 * each)
    assert set(read.look()) >= {"f1", "accuracy"}


def test_classes_are_counted_by_words(taggers: Federation) -> None:
    context = taggers.context(taggers.clients[0], 0, "")
    tags = [
        TAGGED.get(word, "O") for row in context.participant.split("train").rows for word in WORDS[int(row) % 10][:4]
    ]
    assert list(class_counts(context)) == [tags.count(label) for label in taggers.server.task.labels]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seen": 1e6}, "more than once"),
        ({"seen": -1.0}, "less than not at all"),
        ({"seen": None}, "the server expects finite ones, logits .*, seen"),
    ],
)
def test_nobody_sees_a_word_more_than_once(change: dict[str, float | None], says: str, taggers: Federation) -> None:
    """Else one client would have all the weight, or end the round for everybody."""
    server = taggers.server_context(0)
    blank = public_of(server).blank().tensors()
    odd = {
        n: t if n not in change else torch.full_like(t, change[n])
        for n, t in blank.items()
        if change.get(n, 0) is not None
    }
    assert checked("honest", Params.from_tensors(blank), server).is_finite()
    with pytest.raises(RunError, match=says):
        checked("a client", Params.from_tensors(odd), server)
