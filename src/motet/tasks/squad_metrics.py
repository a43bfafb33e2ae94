"""SQuAD's metrics for an answer. Case, punctuation, articles and whitespace are ignored.

The official scripts differ for an answer of which nothing remains, such as "the". The script of SQuAD 2.0 ignores it,
and treats a question without other answers as unanswerable: a prediction of which nothing remains is then right. In the
script of SQuAD 1.1 two such texts match exactly and have F1 0.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lowercase the text, and remove punctuation, articles and extra whitespace."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_match(prediction: str, answer: str) -> float:
    return float(normalize_answer(prediction) == normalize_answer(answer))


def token_f1(prediction: str, answer: str, *, has_unanswerable: bool) -> float:
    """Return the F1 of common tokens. If neither text has tokens, it is 1 in SQuAD 2.0 and 0 in SQuAD 1.1."""
    predicted, true = normalize_answer(prediction).split(), normalize_answer(answer).split()
    if has_unanswerable and not predicted and not true:
        return 1.0
    common = sum((Counter(predicted) & Counter(true)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(true)
    return 2 * precision * recall / (precision + recall)


def scored_answers(answers: Sequence[str], *, has_unanswerable: bool) -> list[str]:
    """Return the answers that a prediction is compared with; [""] if the question is unanswerable."""
    if has_unanswerable:
        answers = [answer for answer in answers if normalize_answer(answer)]
    return list(answers) or [""]
