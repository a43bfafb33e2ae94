"""Answers are scored as by the official scripts of SQuAD 1.1 and 2.0."""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Sequence

import pytest

from motet.tasks.squad_metrics import exact_match, scored_answers, token_f1

TEXTS = (
    "the Antonio  Stradivari!", "Antonio Stradivari", "in Cremona", "Cremona", "", "the", "The", "...", "a", "an apple a day",
    "apple day", "the the cat", "cat cat", "1715.", "1715", "nothing alike", "«Cremona»",
)  # fmt: skip
ANSWERS = (
    ("Cremona",),
    ("The",),
    ("...", "the"),
    ("the", "Cremona"),
    ("Antonio Stradivari", "Stradivari"),
    ("1715", "a"),
)


# The logic of evaluate-v1.1.py and evaluate-v2.0.py, which are published with SQuAD.
def official_normalize(text: str) -> str:
    text = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def official_f1(answer: str, prediction: str, version: str) -> float:
    gold, predicted = official_normalize(answer).split(), official_normalize(prediction).split()
    common = sum((collections.Counter(gold) & collections.Counter(predicted)).values())
    if version == "2.0" and (not gold or not predicted):
        return float(gold == predicted)
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(gold)
    return 2 * precision * recall / (precision + recall)


def official_scores(answers: Sequence[str], prediction: str, version: str) -> tuple[float, float]:
    if version == "2.0":
        answers = [answer for answer in answers if official_normalize(answer)] or [""]
    exact = max(float(official_normalize(answer) == official_normalize(prediction)) for answer in answers)
    return exact, max(official_f1(answer, prediction, version) for answer in answers)


@pytest.mark.parametrize("version", ["1.1", "2.0"])
@pytest.mark.parametrize("prediction", TEXTS)
def test_scores_match_the_official_script(prediction: str, version: str) -> None:
    has_unanswerable = version == "2.0"
    cases = [*ANSWERS, *((text,) for text in TEXTS), *([()] if has_unanswerable else [])]
    for answers in cases:
        scored = scored_answers(answers, has_unanswerable=has_unanswerable)
        exact = max(exact_match(prediction, answer) for answer in scored)
        f1 = max(token_f1(prediction, answer, has_unanswerable=has_unanswerable) for answer in scored)
        assert (exact, f1) == pytest.approx(official_scores(answers, prediction, version)), answers


def test_an_answer_that_normalizes_to_nothing_has_f1_zero_in_version_1_and_is_no_answer_in_version_2() -> None:
    assert exact_match("the", "The") == 1.0
    assert token_f1("the", "The", has_unanswerable=False) == 0.0
    assert token_f1("the", "The", has_unanswerable=True) == 1.0
    assert scored_answers(["The"], has_unanswerable=True) == [""]
    assert scored_answers(["The", "Cremona"], has_unanswerable=True) == ["Cremona"]
    assert scored_answers(["The", "Cremona"], has_unanswerable=False) == ["The", "Cremona"]


@pytest.mark.parametrize("answer", [text for text in TEXTS if official_normalize(text)])
@pytest.mark.parametrize("prediction", [text for text in TEXTS if official_normalize(text)])
def test_scores_match_torchmetrics(prediction: str, answer: str) -> None:
    from torchmetrics.functional.text import squad

    scores = squad(
        [{"prediction_text": prediction, "id": "0"}], [{"answers": {"answer_start": [0], "text": [answer]}, "id": "0"}]
    )
    assert token_f1(prediction, answer, has_unanswerable=False) * 100 == pytest.approx(float(scores["f1"]), abs=1e-4)
    assert exact_match(prediction, answer) * 100 == float(scores["exact_match"])
