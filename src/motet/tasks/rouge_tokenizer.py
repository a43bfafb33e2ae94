"""Words and sentences of any script, for ROUGE. On ASCII text, the words are those of rouge-score."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import regex

from motet.learning.lean_transformers import import_nltk

MIN_STEM_LENGTH = 4  # shorter words are not stemmed, as in rouge-score
# Scripts without spaces between words. Each letter, with the marks on it, counts as a word.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
_SPACED_WORD = rf"[\p{{L}}\p{{N}}--[{_UNSPACED}]][\p{{L}}\p{{M}}\p{{N}}--[{_UNSPACED}]]*"
_WORD = regex.compile(rf"[{_UNSPACED}]\p{{M}}*|{_SPACED_WORD}", regex.V1)
_UNSPACED_LETTER = regex.compile(rf"[{_UNSPACED}]", regex.V1)
_SENTENCE_END = regex.compile(r"(?<=[.!?؟۔।॥።][\p{Pe}\p{Pf}\"']*)\s+|(?<=[。！？｡][\p{Pe}\p{Pf}]*)\s*(?=\S)")


class RougeTokenizer:
    """Splits texts into lowercase words. With `stemming`, English words are reduced by the Porter stemmer."""

    def __init__(self, stemming: bool) -> None:
        self.stemming = stemming
        self._stems: dict[str, str] = {}

    def tokenize(self, text: str) -> list[str]:
        words = _WORD.findall(unicodedata.normalize("NFKC", text).lower())
        return [self._stem(word) for word in words] if self.stemming else words

    def _stem(self, word: str) -> str:
        if len(word) < MIN_STEM_LENGTH or not word.isascii():
            return word
        if word not in self._stems:
            self._stems[word] = self._stemmer.stem(word)
        return self._stems[word]

    @cached_property
    def _stemmer(self) -> Any:
        from nltk.stem.porter import PorterStemmer

        return PorterStemmer()


def create_rouge_scorer(types: Sequence[str], stemming: bool) -> Any:
    """Return a scorer of rouge-score with our words."""
    import_nltk()
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(list(types), tokenizer=RougeTokenizer(stemming))


def split_sentences(text: str) -> list[str]:
    """Split a text into its lines or, if it has only one, at the punctuation that ends sentences."""
    lines = [line for line in text.split("\n") if line.strip()]
    return lines if len(lines) != 1 else [s for s in _SENTENCE_END.split(lines[0]) if s]


def has_unspaced_words(text: str) -> bool:
    """True if most letters belong to scripts without spaces between words."""
    letters = sum(c.isalpha() for c in text)
    return 2 * len(_UNSPACED_LETTER.findall(text)) > letters
