"""Detect the language or script of a text.

The script follows from the letters. Languages in Latin script are recognized by their most frequent words, which is
reliable for sentences but not for single words. All other texts are named by their script.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import lru_cache

FREQUENT_WORDS = {
    language: frozenset(words.split())
    for language, words in {
        "Dutch": "de het een van en niet dat voor zijn met ook maar wordt naar",
        "English": "the of and to is that it was for with as this are have",
        "French": "le les des est et que une dans pour qui pas sur avec sont",
        "German": "der die und das ist nicht ein mit auf den von zu sich auch",
        "Italian": "il di che è per una con non sono del della anche più gli",
        "Polish": "i w na się nie że jest do z to jak ale jego przez",
        "Portuguese": "o que não uma em os para com mas do da são ao você",
        "Spanish": "el que los una en por con para las del pero su está más",
        "Swedish": "och att det som en på är av för med till inte har den",
        "Turkish": "bir ve bu için de da ile çok ne gibi daha olarak var mi",
    }.items()
}
JAPANESE = ("HIRAGANA", "KATAKANA")
MAX_CHARACTERS = 400  # enough to recognize the language


def detect_script(text: str) -> str:
    """Return the script of most letters. A text in Han characters with some kana is Japanese."""
    counts = Counter(_letter_script(letter) for letter in text[:MAX_CHARACTERS] if letter.isalpha())
    if not counts:
        return "none"
    if any(kana in counts for kana in JAPANESE):
        counts["JAPANESE"] = sum(counts.pop(name, 0) for name in (*JAPANESE, "CJK"))
    return max(sorted(counts), key=counts.__getitem__).capitalize()


def detect_language(text: str, min_words: int = 1) -> str:
    """Return the language of a text in Latin script, or the script if the language is unknown.

    `min_words`: how many frequent words of a language a text must have.
    """
    script = detect_script(text)
    if script != "Latin":
        return script
    words = Counter(text[:MAX_CHARACTERS].lower().split())
    scores = {
        name: sum(count for word, count in words.items() if word in frequent)
        for name, frequent in FREQUENT_WORDS.items()
    }
    best = max(sorted(scores), key=scores.__getitem__)
    return best if scores[best] >= min_words else script


@lru_cache(maxsize=20_000)
def _letter_script(letter: str) -> str:
    return unicodedata.name(letter, "OTHER").split()[0].split("-")[0]
