"""A word-level tokenizer trained on the corpus, for models that are trained from scratch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from motet.core.errors import ConfigError

MAX_WORDS = 20_000
SPECIAL_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
# One [SEP] after each turn; roles are not written.
CHAT_TEMPLATE = "{{ bos_token }}{% for message in messages %} {{ message.content }} {{ eos_token }}{% endfor %}"
GENERATION_TOKENS = {"bos_token": "[CLS]", "eos_token": "[SEP]"}


def build_word_tokenizer(texts: Iterable[str] | str, size: int = MAX_WORDS, add_special_tokens: bool = True) -> Any:
    """Train a fast tokenizer on the most frequent words, in lowercase.

    `add_special_tokens` puts [CLS] and [SEP] around texts. If `texts` is one string, it is the JSON of a trained
    tokenizer, as sent to clients that must use the server's vocabulary. Only the words are taken from it: rules of the
    server could replace a character by megabytes, or take forever to match a text.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    unknown, special_tokens = SPECIAL_TOKENS["unk_token"], list(SPECIAL_TOKENS.values())
    words = _read_words(texts) if isinstance(texts, str) else {}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=unknown))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if isinstance(texts, str):
        tokenizer.add_special_tokens(special_tokens)
    else:
        trainer = trainers.WordLevelTrainer(vocab_size=size, special_tokens=special_tokens, show_progress=False)
        tokenizer.train_from_iterator(texts, trainer)
    if add_special_tokens:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
        )
    return _wrap(tokenizer)


def _read_words(text: str) -> dict[str, int]:
    """Return the words of a tokenizer, which another process trained, and their IDs."""
    try:
        words = json.loads(text)["model"]["vocab"]
        is_valid = sorted(words.values()) == list(range(len(words))) and len(words) <= MAX_WORDS
        is_valid = is_valid and [words[token] for token in SPECIAL_TOKENS.values()] == list(range(len(SPECIAL_TOKENS)))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise ConfigError(
            f"the vocabulary of the run cannot be read; expected at most {MAX_WORDS:,} words with different IDs. Use the "
            "same version of Motet on both sides."
        )
    return {word: int(index) for word, index in words.items()}


def _wrap(tokenizer: Any) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, **SPECIAL_TOKENS, **GENERATION_TOKENS
    )
