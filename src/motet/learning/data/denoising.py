"""Lessons that a client makes of its own texts: words hidden, or a whole text garbled, to be put right by the model.

Only the text itself is used, never a question put to it, an answer, a summary or a label. All is drawn from the generator that
is handed in, before the training begins: a lesson does not depend on where, or beside whom, it is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.learning.data.features import IGNORE_INDEX, Examples, Ragged

STOPS = (".", "!", "?")  # a sentence ends behind them; there are no others where a tokenizer has none of them


@dataclass(frozen=True)
class SpecialTokens:
    """The tokens of a vocabulary that are no words, and those that end a sentence."""

    words: int
    pad: int
    mask: int
    begin: int
    end: int
    special: tuple[int, ...]
    stops: tuple[int, ...]

    @staticmethod
    def from_tokenizer(tokenizer: Any) -> SpecialTokens:
        begin = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
        end = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
        known = tokenizer.get_vocab()
        stops = tuple(known[s] for s in STOPS if s in known)
        special = tuple(sorted(tokenizer.all_special_ids))
        return SpecialTokens(
            len(tokenizer), tokenizer.pad_token_id, tokenizer.mask_token_id, begin, end, special, stops
        )


def mask_tokens(
    examples: Examples,
    marks: SpecialTokens,
    rng: np.random.Generator,
    share: float = 0.15,
    kept: float = 0.1,
    random: float = 0.1,
) -> Examples:
    """BERT's lesson (Devlin et al. 2019): name some of the words; most of them hidden, some replaced, some left as they are."""
    ids, real = _beside(_framed(passage_tokens(examples, marks), marks), marks.pad)
    asked = (rng.random(ids.shape) < share) & real & ~np.isin(ids, marks.special)
    wanted = ids[asked]
    luck = rng.random(ids.shape)
    ids = np.where(asked & (luck < 1 - kept - random), marks.mask, ids)
    other = rng.integers(0, marks.words, size=ids.shape)
    ids = np.where(asked & (luck >= 1 - kept), other, ids)
    columns = {
        "input_ids": _of_rectangle(ids[real], real, marks.pad),
        "labels": _of_rectangle(wanted, asked, IGNORE_INDEX),
        "masked_positions": _of_rectangle(
            np.nonzero(asked)[1], asked, 0
        ),  # where in its text each of the labels stands
    }
    return Examples(examples.features, examples.rows, columns)


def corrupt_texts(
    examples: Examples, marks: SpecialTokens, rng: np.random.Generator, share: float = 0.3, length: float = 3.0
) -> Examples:
    """BART's lesson (Lewis et al. 2020): sentences in another order, spans of words under one mask each; write the original."""
    clean = passage_tokens(examples, marks)
    garbled = [
        infill_spans(permute_sentences(text, marks.stops, rng), marks.mask, rng, share, length) for text in clean
    ]
    columns = {
        "input_ids": Ragged.from_arrays(_framed(garbled, marks), marks.pad),
        "labels": Ragged.from_arrays([np.append(text, marks.end) for text in clean], IGNORE_INDEX),
        "decoder_input_ids": Ragged.from_arrays([np.concatenate([[marks.begin], text]) for text in clean], marks.pad),
    }
    return Examples(examples.features, examples.rows, columns)


def permute_sentences(text: np.ndarray, stops: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """The sentences of a text in another order."""
    ends = np.flatnonzero(np.isin(text[:-1], stops)) + 1
    if not len(ends):
        return text
    sentences = np.split(text, ends)
    return np.concatenate([sentences[i] for i in rng.permutation(len(sentences))])


def infill_spans(text: np.ndarray, mask: int, rng: np.random.Generator, share: float, length: float) -> np.ndarray:
    """Spans of Poisson(length) words, `share` of all words together, each replaced by one mask; empty spans are dropped."""
    hidden = int(np.ceil(share * len(text)))
    if not hidden:
        return text
    drawn = rng.poisson(length, size=hidden + 8)
    spans = drawn[drawn > 0]
    spans = spans[: int(np.searchsorted(np.cumsum(spans), hidden)) + 1]
    spans[-1] -= max(0, int(spans.sum()) - hidden)
    places = np.sort(rng.choice(len(text) - hidden + len(spans), size=len(spans), replace=False))
    shown = np.full(len(text) - hidden + len(spans), -1, np.int64)  # the spans collapsed: one place each, at random
    shown[places] = spans
    widths = np.where(shown > 0, shown, 1)
    starts = np.cumsum(widths) - widths
    return np.where(shown > 0, mask, text[np.minimum(starts, len(text) - 1)])


def passage_tokens(examples: Examples, marks: SpecialTokens) -> list[np.ndarray]:
    """The words of each text, without the marks around them."""
    return [text[~np.isin(text, marks.special)] for text in map(examples.features.passage_tokens, examples.rows)]


def _framed(texts: Sequence[np.ndarray], marks: SpecialTokens) -> list[np.ndarray]:
    return [np.concatenate([[marks.begin], text, [marks.end]]) for text in texts]


def _beside(rows: Sequence[np.ndarray], pad: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of different lengths as a rectangle, and where in it they really are."""
    lengths = np.array([len(row) for row in rows], np.int64)
    real = np.arange(int(lengths.max(initial=1))) < lengths[:, None]
    table = np.full(real.shape, pad, np.int64)
    if len(rows):
        table[real] = np.concatenate(rows)
    return table, real


def _of_rectangle(values: np.ndarray, real: np.ndarray, pad: int) -> Ragged:
    """Rows of what really stands in a rectangle, whose values come row by row."""
    offsets = np.concatenate([[0], np.cumsum(real.sum(1))]).astype(np.int64)
    return Ragged(values.astype(np.int32), offsets, pad)
