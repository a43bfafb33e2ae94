"""Classifiers that read the last end token of a text compute what transformers computes, without waiting for the host."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from tests.families import CASES, PAD, random_features, split_examples
from tests.host_sync import reject_host_sync_in_steps
from tests.job_runs import run_packed
from tests.unit.test_packed import make_jobs

from motet.core.errors import DataError
from motet.learning.data.features import Features, Ragged
from motet.learning.jobs import Fit, FitResult
from motet.learning.packed.end_tokens import check_end_tokens, install_end_token_classifier

END = 2
CLASSIFIERS = ["T5 SequenceClassification", "Bart SequenceClassification"]
each_classifier = pytest.mark.parametrize("name", CLASSIFIERS)
TWO_ENDS = [[5, END, 7, 8, END], [9, 10, END, END], [END, 11, 12, 13, 14, END, 15]]


def batch_of(texts: list[list[int]]) -> dict[str, Any]:
    features = Features("texts", {"input_ids": Ragged.from_lists(texts, PAD)})
    return features.batch(np.arange(len(texts)))


@each_classifier
def test_outputs_and_gradients_equal_those_of_transformers_to_the_bit(name: str) -> None:
    original = CASES[name].build().train()
    ours = copy.deepcopy(original)
    install_end_token_classifier(ours)
    assert type(ours) is not type(original)
    results = []
    for module in (original, ours):
        logits = module(**batch_of(TWO_ENDS))["logits"]
        logits.square().sum().backward()
        results.append([logits, *(p.grad for p in module.parameters())])
    for expected, actual in zip(*results, strict=True):
        assert (expected is None) == (actual is None)
        assert expected is None or torch.equal(actual, expected)


@each_classifier
def test_a_packed_step_does_not_wait_for_the_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda _: 1.0)  # BART draws whether to drop a layer, on the CPU
    with reject_host_sync_in_steps(allow_scalars=True) as calls:
        results, executor = run_packed(make_jobs(CASES[name]))
    assert all(isinstance(result, FitResult) for result in results.values())
    assert [choice.mode for choice in executor.packing_choices.values()] == ["packed_layers"]
    assert "_weighted_losses" in calls


@each_classifier
@pytest.mark.parametrize("text", [[5, 6, 7], [5, END, 6, END]], ids=["no end", "two ends"])
def test_other_numbers_of_end_tokens_are_an_error(name: str, text: list[int]) -> None:
    case = CASES[name]
    model, texts = case.model(), [[3, 4, END], [5, END], text, [6, 7, 8, END]]
    features = Features("uneven", {"input_ids": Ragged.from_lists(texts, PAD), "labels": np.arange(4) % 3})
    jobs = [
        Fit(model, model.initial_params, examples, case.objective, make_jobs(case)[0].solver, i)
        for i, examples in enumerate(split_examples(features, (2, 2)))
    ]
    with pytest.raises(DataError, match=f"text 0 has 1 and text 2 has {text.count(END)}"):
        run_packed(jobs)
    install_end_token_classifier(model.module)
    with torch.no_grad():
        logits = model.module(**batch_of(texts))["logits"]
    assert torch.isnan(logits).all(1).tolist() == [False, False, True, False], "a loss from this text is no number"


def test_padding_with_end_tokens_counts() -> None:
    module = CASES[CLASSIFIERS[0]].build()
    even, uneven = ({"input_ids": Ragged.from_lists(texts, END)} for texts in ([[3, 4], [5, 6]], [[3, 4], [5]]))
    with pytest.raises(DataError, match="text 0 has 0 and text 1 has 1"):
        check_end_tokens(module, Features("uneven", uneven))
    with pytest.raises(DataError, match="no text has one"):
        check_end_tokens(module, Features("even", even))


def test_other_models_keep_their_code_and_read_any_text() -> None:
    case = CASES["Bert SequenceClassification"]
    module = case.build()
    cls = type(module)
    install_end_token_classifier(module)
    check_end_tokens(module, random_features(case, 5))
    assert type(module) is cls
