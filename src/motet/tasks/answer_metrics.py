"""Metrics of written answers: exact match for answers that are one of few, and ROUGE-L for all others."""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np

from motet.tasks.rouge_tokenizer import create_rouge_scorer

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation + "“”‘’«»…–—")


def normalize_answer(text: str) -> str:
    """Return the first line in lowercase, without punctuation and repeated spaces."""
    lines = text.strip().splitlines()
    return " ".join(lines[0].lower().translate(_WITHOUT_PUNCTUATION).split()) if lines else ""


def exact_matches(generated: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Return 1 for each answer that equals its reference after normalization, else 0.

    An answer that normalization would erase, such as a number of stars written as symbols, is compared as it is.
    """
    pairs = zip(generated, references, strict=True)
    return np.array([_is_match(text, reference) for text, reference in pairs], np.float32)


def rouge_l(generated: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Return ROUGE-L (F1, with stemming) of each answer."""
    scorer = create_rouge_scorer(["rougeL"], stemming=True)
    pairs = zip(generated, references, strict=True)
    return np.array([scorer.score(reference, text)["rougeL"].fmeasure for text, reference in pairs], np.float32)


def _is_match(text: str, reference: str) -> bool:
    expected = normalize_answer(reference)
    return normalize_answer(text) == expected if expected else text.strip() == reference.strip()
