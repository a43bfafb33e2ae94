"""Self-supervised examples from a client's own texts."""

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
from motet.models.model_config import ModelConfig

TOKENS = SpecialTokens(vocab_size=1000, pad=0, mask=4, begin=2, end=3, special=(0, 1, 2, 3, 4), sentence_ends=(9,))


def random_texts(count: int, length: int) -> Examples:
    rng = np.random.default_rng(1)
    rows = [[2, *rng.integers(10, 1000, size=length).tolist(), 3] for _ in range(count)]
    return Examples(Features("random", {"input_ids": Ragged.from_lists(rows)}), np.arange(count))


def test_fifteen_percent_of_tokens_are_predicted_and_most_of_them_masked() -> None:
    examples = random_texts(200, 100)
    masked = mask_tokens(examples, TOKENS, np.random.default_rng(0))
    ids, original = (e.batch(np.arange(200))["input_ids"].numpy() for e in (masked, examples))
    targets, positions = (masked.extra_columns[name] for name in ("labels", "masked_positions"))
    assert isinstance(targets, Ragged)
    assert isinstance(positions, Ragged)
    labels = np.full(ids.shape, IGNORE_INDEX)
    labels[np.repeat(np.arange(200), targets.lengths), positions.values] = targets.values
    is_target = labels != IGNORE_INDEX
    assert is_target.sum() / (200 * 100) == pytest.approx(0.15, abs=0.01)
    assert (labels[is_target] == original[is_target]).all()
    assert (ids[~is_target] == original[~is_target]).all()
    assert (ids[is_target] == TOKENS.mask).mean() == pytest.approx(0.8, abs=0.02)
    assert (ids[is_target] == original[is_target]).mean() == pytest.approx(0.1, abs=0.02)
    assert not np.isin(original[is_target], TOKENS.special).any()


def test_the_target_of_a_corrupted_text_is_the_original() -> None:
    examples = random_texts(20, 40)
    batch = corrupt_texts(examples, TOKENS, np.random.default_rng(0)).batch(np.arange(20))
    original = examples.batch(np.arange(20))["input_ids"].numpy()
    labels, decoder_inputs = batch["labels"].numpy(), batch["decoder_input_ids"].numpy()
    assert (labels == original[:, 1:]).all()  # the words and the end token
    assert (decoder_inputs == original[:, :-1]).all()  # shifted by one: each token predicts the next
    inputs = [row[row != TOKENS.pad] for row in batch["input_ids"].numpy()]
    assert all((row == TOKENS.mask).any() and len(row) < 42 for row in inputs)


@pytest.mark.parametrize("mean_span", [3.0, 0.5])
@pytest.mark.parametrize("length", [1, 2, 5, 40, 333])
def test_spans_hide_a_fraction_of_the_tokens_and_keep_the_order_of_the_others(length: int, mean_span: float) -> None:
    rng, num_masked = np.random.default_rng(length), int(np.ceil(0.3 * length))
    texts = infill_spans(Ragged.from_arrays([np.arange(100, 100 + length)] * 50), TOKENS.mask, rng, 0.3, mean_span)
    assert len(texts) == 50
    for i in range(50):
        text = texts[i]
        visible = text[text != TOKENS.mask]
        assert len(visible) == length - num_masked
        assert (np.diff(visible) > 0).all()
        assert 1 <= (text == TOKENS.mask).sum() <= num_masked


def test_an_empty_text_stays_empty() -> None:
    texts = Ragged.from_lists([[], [11, 9, 12], []])
    permuted = permute_sentences(texts, (9,), np.random.default_rng(0))
    assert infill_spans(permuted, TOKENS.mask, np.random.default_rng(0), 0.3, 3.0).lengths.tolist() == [0, 3, 0]


def test_span_lengths_follow_the_poisson_distribution_without_zero() -> None:
    text = np.arange(100, 10_100)
    corrupted = infill_spans(Ragged.from_arrays([text]), TOKENS.mask, np.random.default_rng(0), 0.3, 3.0)
    assert len(text) * 0.3 / (corrupted.values == TOKENS.mask).sum() == pytest.approx(3 / (1 - np.exp(-3)), rel=0.05)


def test_sentences_are_permuted_as_wholes() -> None:
    texts = Ragged.from_lists([[11, 12, 9, 21, 9, 31, 32, 33], [41, 9]] * 40)
    permuted = permute_sentences(texts, (9,), np.random.default_rng(0))
    orders = {tuple(permuted[i]) for i in range(0, 80, 2)}
    assert len(orders) == 6
    assert all(permuted[i].tolist() == [41, 9] for i in range(1, 80, 2))
    assert all("11, 12, 9" in str(list(map(int, order))) for order in orders)


@pytest.mark.parametrize("make_examples", [mask_tokens, corrupt_texts])
def test_the_same_generator_gives_the_same_examples(make_examples: object) -> None:
    assert callable(make_examples)
    first, second = (
        make_examples(random_texts(5, 20), TOKENS, np.random.default_rng(3)).batch(np.arange(5)) for _ in range(2)
    )
    assert all((first[name] == second[name]).all() for name in first)


@pytest.fixture(scope="module")
def qa_federation() -> Federation:
    return federate_corpus(
        ModelConfig("mixed:tiny", 40),
        toy_qa(40, 8),
        ComponentConfig("uniform", {"clients": 2}),
        Seed(1),
        task=ComponentConfig("qa", {"max_question_tokens": 8}),
    )


def test_questions_are_not_part_of_the_texts(qa_federation: Federation) -> None:
    tokenizer = qa_federation.model.tokenizer
    examples = qa_federation.participant(qa_federation.clients[0]).split("train")
    texts = passage_tokens(examples, SpecialTokens.from_tokenizer(tokenizer))
    which = tokenizer.get_vocab()["which"]  # in every question, in no text
    assert len(texts)
    assert texts.lengths.all()
    assert which not in texts.values
