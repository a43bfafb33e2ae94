"""A word-level tokenizer trained on the corpus, for models that are trained from scratch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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


def build_word_tokenizer(texts: Iterable[str] | str, size: int = 20_000, add_special_tokens: bool = True) -> Any:
    """Train a fast tokenizer on the most frequent words, in lowercase.

    `add_special_tokens` puts [CLS] and [SEP] around texts. If `texts` is one string, it is the JSON of a trained
    tokenizer, as sent to clients that must use the server's vocabulary.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    if isinstance(texts, str):
        return _wrap(Tokenizer.from_str(texts))
    tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIAL_TOKENS["unk_token"]))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordLevelTrainer(
        vocab_size=size, special_tokens=list(SPECIAL_TOKENS.values()), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    if add_special_tokens:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
        )
    return _wrap(tokenizer)


def _wrap(tokenizer: Any) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, **SPECIAL_TOKENS, **GENERATION_TOKENS
    )
