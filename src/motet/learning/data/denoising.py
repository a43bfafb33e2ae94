"""Self-supervised examples from a client's own texts: masked tokens (BERT) and corrupted texts (BART).

Only the text itself is used, never a question, an answer, a summary or a label. All randomness comes from the generator
that is passed in and is drawn before training starts, so the examples do not depend on where they are trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.learning.data.features import IGNORE_INDEX, Examples, Ragged

SENTENCE_ENDS = (".", "!", "?")


@dataclass(frozen=True)
class SpecialTokens:
    """Token ids of a vocabulary that are not words, and those that end a sentence (none if the tokenizer has none)."""

    vocab_size: int
    pad: int
    mask: int
    begin: int
    end: int
    special: tuple[int, ...]
    sentence_ends: tuple[int, ...]

    @staticmethod
    def from_tokenizer(tokenizer: Any) -> SpecialTokens:
        vocab = tokenizer.get_vocab()
        return SpecialTokens(
            vocab_size=len(tokenizer),
            pad=tokenizer.pad_token_id,
            mask=tokenizer.mask_token_id,
            begin=tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id,
            end=tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id,
            special=tuple(sorted(tokenizer.all_special_ids)),
            sentence_ends=tuple(vocab[mark] for mark in SENTENCE_ENDS if mark in vocab),
        )


def mask_tokens(
    examples: Examples,
    tokens: SpecialTokens,
    rng: np.random.Generator,
    mask_fraction: float = 0.15,
    keep_fraction: float = 0.1,
    random_fraction: float = 0.1,
) -> Examples:
    """Prepare masked language modeling (Devlin et al. 2019).

    Of the tokens to predict, `keep_fraction` stay as they are, `random_fraction` are replaced by random tokens, and the
    rest by the mask token.
    """
    ids, is_token = _pad_arrays(_add_begin_and_end(passage_tokens(examples, tokens), tokens), tokens.pad)
    is_target = (rng.random(ids.shape) < mask_fraction) & is_token & ~np.isin(ids, tokens.special)
    targets = ids[is_target]
    draw = rng.random(ids.shape)
    ids = np.where(is_target & (draw < 1 - keep_fraction - random_fraction), tokens.mask, ids)
    random_ids = rng.integers(0, tokens.vocab_size, size=ids.shape)
    ids = np.where(is_target & (draw >= 1 - keep_fraction), random_ids, ids)
    columns = {
        "input_ids": _ragged_from_mask(ids[is_token], is_token, tokens.pad),
        "labels": _ragged_from_mask(targets, is_target, IGNORE_INDEX),
        "masked_positions": _ragged_from_mask(np.nonzero(is_target)[1], is_target, 0),  # of each label in its text
    }
    return Examples(examples.features, examples.rows, columns)


def corrupt_texts(
    examples: Examples,
    tokens: SpecialTokens,
    rng: np.random.Generator,
    mask_fraction: float = 0.3,
    mean_span: float = 3.0,
) -> Examples:
    """Prepare denoising (Lewis et al. 2020): permute sentences and mask spans; the target is the original text."""
    originals = passage_tokens(examples, tokens)
    corrupted = [
        infill_spans(permute_sentences(text, tokens.sentence_ends, rng), tokens.mask, rng, mask_fraction, mean_span)
        for text in originals
    ]
    decoder_inputs = [np.concatenate([[tokens.begin], text]) for text in originals]
    columns = {
        "input_ids": Ragged.from_arrays(_add_begin_and_end(corrupted, tokens), tokens.pad),
        "labels": Ragged.from_arrays([np.append(text, tokens.end) for text in originals], IGNORE_INDEX),
        "decoder_input_ids": Ragged.from_arrays(decoder_inputs, tokens.pad),
    }
    return Examples(examples.features, examples.rows, columns)


def permute_sentences(text: np.ndarray, sentence_ends: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    ends = np.flatnonzero(np.isin(text[:-1], sentence_ends)) + 1
    if not len(ends):
        return text
    sentences = np.split(text, ends)
    return np.concatenate([sentences[i] for i in rng.permutation(len(sentences))])


def infill_spans(
    text: np.ndarray, mask: int, rng: np.random.Generator, mask_fraction: float, mean_span: float
) -> np.ndarray:
    """Replace random spans by one mask token each.

    Span lengths are Poisson(`mean_span`) and cover `mask_fraction` of the tokens; spans of length 0 are dropped.
    """
    num_masked = int(np.ceil(mask_fraction * len(text)))
    if not num_masked:
        return text
    lengths = rng.poisson(mean_span, size=num_masked + 8)
    spans = lengths[lengths > 0]
    spans = spans[: int(np.searchsorted(np.cumsum(spans), num_masked)) + 1]
    spans[-1] -= max(0, int(spans.sum()) - num_masked)
    length = len(text) - num_masked + len(spans)  # after each span has become one token
    span_positions = np.sort(rng.choice(length, size=len(spans), replace=False))
    span_lengths = np.full(length, -1, np.int64)
    span_lengths[span_positions] = spans
    widths = np.where(span_lengths > 0, span_lengths, 1)
    starts = np.cumsum(widths) - widths
    return np.where(span_lengths > 0, mask, text[np.minimum(starts, len(text) - 1)])


def passage_tokens(examples: Examples, tokens: SpecialTokens) -> list[np.ndarray]:
    """Return the tokens of each text, without special tokens."""
    texts = map(examples.features.passage_tokens, examples.rows)
    return [text[~np.isin(text, tokens.special)] for text in texts]


def _add_begin_and_end(texts: Sequence[np.ndarray], tokens: SpecialTokens) -> list[np.ndarray]:
    return [np.concatenate([[tokens.begin], text, [tokens.end]]) for text in texts]


def _pad_arrays(rows: Sequence[np.ndarray], pad: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a padded matrix, and a mask that is True where a value is not padding."""
    lengths = np.array([len(row) for row in rows], np.int64)
    mask = np.arange(int(lengths.max(initial=1))) < lengths[:, None]
    padded = np.full(mask.shape, pad, np.int64)
    if len(rows):
        padded[mask] = np.concatenate(rows)
    return padded, mask


def _ragged_from_mask(values: np.ndarray, mask: np.ndarray, pad: int) -> Ragged:
    """Make a ragged column of the values at the True positions of `mask`, given in row-major order."""
    offsets = np.concatenate([[0], np.cumsum(mask.sum(1))]).astype(np.int64)
    return Ragged(values.astype(np.int32), offsets, pad)
