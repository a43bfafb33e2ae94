"""Configurations of tiny models with random weights, for toy corpora and tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CAUSAL_TASKS = ("lm", "instruct", "preference")
TINY_BERT = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
    "max_position_embeddings": 128, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
TINY_GPT2 = {
    "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 128,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
TINY_BART = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_position_embeddings": 128, "dropout": 0.0,
}  # fmt: skip


def tiny_config(task: str, tokenizer: Any, labels: Mapping[str, Any], overrides: Mapping[str, Any]) -> Any:
    """Return a BART configuration for seq2seq, GPT-2 for causal tasks, BERT for others.

    `labels` are the label settings of a classifier (`num_labels`, `id2label`, …).
    """
    import transformers

    vocabulary = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    ends = {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    if task in CAUSAL_TASKS:
        return transformers.GPT2Config(**{**TINY_GPT2, **vocabulary, **ends, **overrides})
    if task == "seq2seq":
        decoder = {"decoder_start_token_id": tokenizer.cls_token_id, "forced_eos_token_id": None}
        return transformers.BartConfig(**{**TINY_BART, **vocabulary, **ends, **decoder, **overrides})
    return transformers.BertConfig(**{**TINY_BERT, **vocabulary, **labels, **overrides})
