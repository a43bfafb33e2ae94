"""When is a predicted answer the right one? SQuAD's rules: case, punctuation, articles and blanks do not count."""

from __future__ import annotations

import re
import string
from collections import Counter

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower-case, without punctuation and articles, single blanks."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def exact_match(said: str, answer: str) -> float:
    return float(normalize_answer(said) == normalize_answer(answer))


def token_f1(said: str, answer: str) -> float:
    """F1 of the words the two have in common; where one has none, they must both have none."""
    mine, theirs = normalize_answer(said).split(), normalize_answer(answer).split()
    if not mine or not theirs:
        return float(mine == theirs)
    common = sum((Counter(mine) & Counter(theirs)).values())
    if not common:
        return 0.0
    precision, recall = common / len(mine), common / len(theirs)
    return 2 * precision * recall / (precision + recall)
