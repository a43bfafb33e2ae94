"""A word-level tokenizer made from the corpus itself, for models that are trained from nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
ENDS = {"bos_token": "[CLS]", "eos_token": "[SEP]"}  # where a model writes: the first and the last mark


def build_word_tokenizer(texts: Iterable[str], size: int = 20_000, marked: bool = True) -> Any:
    """The most frequent words, lower-cased, as a fast Hugging Face tokenizer; `marked` puts [CLS] and [SEP] around a text.

    One string in place of texts is a tokenizer that was made before, as JSON: somebody who has not the texts has the words.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    if isinstance(texts, str):
        made = Tokenizer.from_str(texts)
        return PreTrainedTokenizerFast(tokenizer_object=made, **SPECIAL, **ENDS)  # type: ignore[no-untyped-call]
    tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIAL["unk_token"]))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = list(SPECIAL.values())
    trainer = trainers.WordLevelTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    if marked:
        marks = [(t, tokenizer.token_to_id(t)) for t in ("[CLS]", "[SEP]")]
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=marks
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL, **ENDS)  # type: ignore[no-untyped-call]
