"""Lessons that clients make of their own texts."""

from __future__ import annotations

import numpy as np
import pytest

from motet.core.rng import Seed
from motet.datasets.toy_corpora import toy_qa
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.data.denoising import (
    SpecialTokens,
    corrupt_texts,
    infill_spans,
    mask_tokens,
    passage_tokens,
    permute_sentences,
)
from motet.learning.data.features import IGNORE_INDEX, Examples, Features, Ragged
from motet.models.load_model import ModelConfig

MARKS = SpecialTokens(vocab_size=1000, pad=0, mask=4, begin=2, end=3, special=(0, 1, 2, 3, 4), sentence_ends=(9,))


def texts(count: int, words: int) -> Examples:
    rng = np.random.default_rng(1)
    rows = [[2, *rng.integers(10, 1000, size=words).tolist(), 3] for _ in range(count)]
    return Examples(Features("t", {"input_ids": Ragged.from_lists(rows)}), np.arange(count))


def test_a_seventh_of_the_words_is_asked_for_and_most_of_them_are_hidden() -> None:
    examples = texts(200, 100)
    lesson = mask_tokens(examples, MARKS, np.random.default_rng(0))
    ids, before = (e.batch(np.arange(200))["input_ids"].numpy() for e in (lesson, examples))
    wanted, places = (lesson.extra_columns[name] for name in ("labels", "masked_positions"))
    assert isinstance(wanted, Ragged)
    assert isinstance(places, Ragged)
    labels = np.full(ids.shape, IGNORE_INDEX)
    labels[np.repeat(np.arange(200), wanted.lengths), places.values] = wanted.values
    asked = labels != IGNORE_INDEX
    assert asked.sum() / (200 * 100) == pytest.approx(0.15, abs=0.01)
    assert (labels[asked] == before[asked]).all()
    assert (ids[~asked] == before[~asked]).all()
    assert (ids[asked] == MARKS.mask).mean() == pytest.approx(0.8, abs=0.02)
    assert (ids[asked] == before[asked]).mean() == pytest.approx(0.1, abs=0.02)
    assert not np.isin(before[asked], MARKS.special).any()


def test_a_garbled_text_is_to_be_written_as_it_was() -> None:
    examples = texts(20, 40)
    lesson = corrupt_texts(examples, MARKS, np.random.default_rng(0))
    before = examples.batch(np.arange(20))["input_ids"].numpy()
    batch = lesson.batch(np.arange(20))
    labels, decoder = batch["labels"].numpy(), batch["decoder_input_ids"].numpy()
    assert (labels == before[:, 1:]).all()  # the words, and the end
    assert (decoder == before[:, :-1]).all()  # the beginning, and the words: each predicts the next
    ids = [row[row != MARKS.pad] for row in batch["input_ids"].numpy()]
    assert all((row == MARKS.mask).any() and len(row) < 42 for row in ids)


@pytest.mark.parametrize("length", [1, 2, 5, 40, 333])
def test_spans_hide_a_share_of_the_words_and_leave_the_others_in_order(length: int) -> None:
    rng = np.random.default_rng(length)
    for _ in range(50):
        found = infill_spans(np.arange(100, 100 + length), 4, rng, 0.3, 3.0)
        left = found[found != 4]
        assert len(left) == length - int(np.ceil(0.3 * length))
        assert (np.diff(left) > 0).all()
        assert 1 <= (found == 4).sum() <= int(np.ceil(0.3 * length))


def test_an_empty_text_stays_empty() -> None:
    assert not len(infill_spans(np.zeros(0, np.int64), 4, np.random.default_rng(0), 0.3, 3.0))


def test_sentences_change_places_and_stay_whole() -> None:
    text = np.array([11, 12, 9, 21, 9, 31, 32, 33])
    orders = {tuple(permute_sentences(text, (9,), np.random.default_rng(i))) for i in range(40)}
    assert len(orders) == 6
    assert all("11, 12, 9" in str(list(map(int, order))) for order in orders)


def test_the_same_generator_gives_the_same_lesson() -> None:
    for make in (mask_tokens, corrupt_texts):
        first, second = (make(texts(5, 20), MARKS, np.random.default_rng(3)).batch(np.arange(5)) for _ in range(2))
        assert all((first[name] == second[name]).all() for name in first)


@pytest.fixture(scope="module")
def questions() -> Federation:
    return federate_corpus(
        ModelConfig("mixed:tiny", 40),
        toy_qa(40, 8),
        ComponentConfig("uniform", {"clients": 2}),
        Seed(1),
        task=ComponentConfig("qa", {"max_question_tokens": 8}),
    )


def test_the_question_is_no_part_of_the_lesson(questions: Federation) -> None:
    marks = SpecialTokens.from_tokenizer(questions.model.tokenizer)
    found = passage_tokens(questions.participant(questions.clients[0]).split("train"), marks)
    which = questions.model.tokenizer.get_vocab()["which"]  # every question begins with it, no text has it
    assert len(found)
    assert all(len(text) and which not in text for text in found)
