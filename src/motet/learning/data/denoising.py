"""Self-supervised examples from a client's own texts: masked tokens (BERT) and corrupted texts (BART).

Only the text itself is used, never a question, an answer, a summary or a label. All randomness comes from the generator
that is passed in and is drawn before training starts, so the examples do not depend on where they are trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from motet.learning.data.features import IGNORE_INDEX, Examples, Ragged, slice_positions

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
    @lru_cache(maxsize=16)  # a vocabulary takes 40 ms to read, and every client asks for it in every round
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
    texts = _add_tokens(passage_tokens(examples, tokens), tokens.pad, begin=tokens.begin, end=tokens.end)
    ids = texts.values
    is_target = (rng.random(len(ids)) < mask_fraction) & ~np.isin(ids, tokens.special)
    draw, random_ids = rng.random(len(ids)), rng.integers(0, tokens.vocab_size, size=len(ids))
    changed = np.where(is_target & (draw < 1 - keep_fraction - random_fraction), tokens.mask, ids)
    changed = np.where(is_target & (draw >= 1 - keep_fraction), random_ids, changed)
    targets_before = np.concatenate([[0], np.cumsum(is_target)])
    offsets = targets_before[texts.offsets]  # of each text's targets
    positions = np.arange(len(ids)) - np.repeat(texts.offsets[:-1], texts.lengths)
    columns = {
        "input_ids": Ragged(changed.astype(np.int32), texts.offsets, tokens.pad),
        "labels": Ragged(ids[is_target], offsets, IGNORE_INDEX),
        "masked_positions": Ragged(positions[is_target].astype(np.int32), offsets, 0),  # of each label in its text
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
    permuted = permute_sentences(originals, tokens.sentence_ends, rng)
    corrupted = infill_spans(permuted, tokens.mask, rng, mask_fraction, mean_span)
    columns = {
        "input_ids": _add_tokens(corrupted, tokens.pad, begin=tokens.begin, end=tokens.end),
        "labels": _add_tokens(originals, IGNORE_INDEX, end=tokens.end),
        "decoder_input_ids": _add_tokens(originals, tokens.pad, begin=tokens.begin),
    }
    return Examples(examples.features, examples.rows, columns)


def permute_sentences(texts: Ragged, sentence_ends: Sequence[int], rng: np.random.Generator) -> Ragged:
    """Shuffle the sentences of each text."""
    is_start = np.zeros(len(texts.values), bool)
    is_start[1:] = np.isin(texts.values[:-1], sentence_ends)
    is_start[texts.offsets[:-1][texts.lengths > 0]] = True
    starts = np.flatnonzero(is_start)
    text_of_sentence = np.searchsorted(texts.offsets, starts, side="right") - 1
    order = np.argsort(text_of_sentence + rng.random(len(starts)))
    lengths = np.diff(np.append(starts, len(texts.values)))
    return Ragged(texts.values[slice_positions(starts[order], lengths[order])], texts.offsets, texts.pad)


def infill_spans(texts: Ragged, mask: int, rng: np.random.Generator, mask_fraction: float, mean_span: float) -> Ragged:
    """Replace random spans of each text by one mask token each.

    Span lengths are Poisson(`mean_span`) and cover `mask_fraction` of the tokens; spans of length 0 are dropped.
    """
    num_masked = np.ceil(mask_fraction * texts.lengths).astype(np.int64)
    spans, num_spans = _draw_spans(num_masked, mean_span, rng)
    lengths = texts.lengths - num_masked + num_spans  # after each span has become one token
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    order = np.argsort(np.repeat(np.arange(len(texts)), lengths) + rng.random(offsets[-1]))
    is_span = np.zeros(offsets[-1], bool)
    # Random tokens of each text, as many as it has spans.
    is_span[order[slice_positions(offsets[:-1], num_spans)]] = True
    widths = np.ones(offsets[-1], np.int64)
    widths[is_span] = spans
    starts = np.cumsum(widths) - widths  # all texts together keep their length, so these are positions in `values`
    return Ragged(np.where(is_span, mask, texts.values[starts]).astype(np.int32), offsets, texts.pad)


def passage_tokens(examples: Examples, tokens: SpecialTokens) -> Ragged:
    """Return the tokens of each text, without special tokens."""
    texts = examples.features.passage_tokens(examples.rows)
    return texts.keep(~np.isin(texts.values, tokens.special))


def _draw_spans(num_masked: np.ndarray, mean_span: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the span lengths of all texts, one text after another, and the number of spans of each text."""
    num_draws = np.where(num_masked, num_masked + 8, 0)
    text = np.repeat(np.arange(len(num_masked)), num_draws)
    draws = rng.poisson(mean_span, size=len(text))
    draws[np.cumsum(num_draws)[num_masked > 0] - 1] = num_masked[num_masked > 0]  # enough, even if the others are short
    text, draws = text[draws > 0], draws[draws > 0]
    drawn_before = np.cumsum(draws) - draws
    first_draws = np.searchsorted(text, np.arange(len(num_masked)))
    covered = drawn_before - np.append(drawn_before, 0)[first_draws][text]  # by the earlier spans of the same text
    is_used = covered < num_masked[text]
    spans = np.minimum(draws, num_masked[text] - covered)[is_used]
    return spans, np.bincount(text[is_used], minlength=len(num_masked))


def _add_tokens(texts: Ragged, pad: int, begin: int | None = None, end: int | None = None) -> Ragged:
    """Put a token before each text, and one after it."""
    lengths = texts.lengths + (begin is not None) + (end is not None)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = np.empty(offsets[-1], np.int32)
    values[slice_positions(offsets[:-1] + (begin is not None), texts.lengths)] = texts.values
    if begin is not None:
        values[offsets[:-1]] = begin
    if end is not None:
        values[offsets[1:] - 1] = end
    return Ragged(values, offsets, pad)
