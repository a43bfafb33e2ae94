"""Tiny models of every family and head with random texts, to test packed training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import transformers as hf
from torch import nn

from motet.learning.data.features import IGNORE_INDEX, Examples, Features, Ragged
from motet.learning.modules.model import Model
from motet.learning.objectives.supervised import CrossEntropy, Objective, SpanCrossEntropy, TokenCrossEntropy
from motet.models.parameter_roles import infer_parameter_roles

VOCABULARY, PAD, LABELS = 67, 1, 3
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
BERT = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 40, "pad_token_id": PAD, **NO_DROPOUT,
}  # fmt: skip
BART = {
    "vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 40,
    "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "classifier_dropout": 0.0, "pad_token_id": PAD,
    "eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 2,
}  # fmt: skip
T5 = {
    "vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0,
    "pad_token_id": PAD, "decoder_start_token_id": PAD, "eos_token_id": 2, "relative_attention_num_buckets": 8,
    "classifier_dropout": 0.0,
}  # fmt: skip
GPT2 = {
    "vocab_size": VOCABULARY, "n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    "attn_pdrop": 0.0, "pad_token_id": PAD, "bos_token_id": 2, "eos_token_id": 2,
}  # fmt: skip
LLAMA = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 40, "pad_token_id": PAD, "bos_token_id": 2, "eos_token_id": 2,
}  # fmt: skip
DISTIL = {
    "vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 40,
    "pad_token_id": PAD, "dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0, "qa_dropout": 0.0,
}  # fmt: skip
XLNET = {
    "vocab_size": VOCABULARY, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "dropout": 0.0, "summary_last_dropout": 0.0,
    "pad_token_id": PAD,
}  # fmt: skip
DEBERTA = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
MODERN = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 40, "pad_token_id": PAD, "bos_token_id": 2, "eos_token_id": 2, "cls_token_id": 2,
    "sep_token_id": 2, "attention_dropout": 0.0, "embedding_dropout": 0.0, "mlp_dropout": 0.0, "classifier_dropout": 0.0,
}  # fmt: skip

CLASSIFY, TAG, SPAN, LM = "SequenceClassification", "TokenClassification", "QuestionAnswering", "MaskedLM"
FAMILIES: dict[str, tuple[Any, list[str]]] = {
    "Bert": (partial(hf.BertConfig, **BERT), [CLASSIFY, TAG, SPAN, LM]),
    "DistilBert": (partial(hf.DistilBertConfig, **DISTIL), [CLASSIFY, TAG, SPAN]),
    "Roberta": (partial(hf.RobertaConfig, **BERT), [CLASSIFY, TAG, SPAN]),
    "MPNet": (partial(hf.MPNetConfig, **BERT), [CLASSIFY, TAG]),
    "Albert": (
        partial(hf.AlbertConfig, **{**BERT, "embedding_size": 16, "classifier_dropout_prob": 0.0}),
        [CLASSIFY, SPAN],
    ),
    "Electra": (
        partial(hf.ElectraConfig, **{**BERT, "embedding_size": 16, "summary_last_dropout": 0.0}),
        [CLASSIFY, TAG],
    ),
    "XLNet": (partial(hf.XLNetConfig, **XLNET), [CLASSIFY, TAG]),
    "Bart": (partial(hf.BartConfig, **BART), [CLASSIFY, "ConditionalGeneration"]),
    "Marian": (partial(hf.MarianConfig, **{**BART, "decoder_start_token_id": PAD}), ["MTModel"]),
    "T5": (partial(hf.T5Config, **T5), [CLASSIFY, "ConditionalGeneration"]),
    "GPT2": (partial(hf.GPT2Config, **GPT2), [CLASSIFY, "LMHeadModel"]),
    "Llama": (partial(hf.LlamaConfig, **LLAMA), [CLASSIFY, "CausalLM"]),
    "DebertaV2": (partial(hf.DebertaV2Config, **{**BERT, **DEBERTA, "pooler_dropout": 0.0}), [CLASSIFY]),
    "ModernBert": (partial(hf.ModernBertConfig, **MODERN), [CLASSIFY]),
}
TASKS = {
    CLASSIFY: "classify", TAG: "tag", SPAN: "span", LM: "tag", "MTModel": "write", "ConditionalGeneration": "write",
    "LMHeadModel": "next", "CausalLM": "next",
}  # fmt: skip
OBJECTIVES: dict[str, Objective] = {
    "classify": CrossEntropy(),
    "tag": TokenCrossEntropy(),
    "span": SpanCrossEntropy(),
    "next": TokenCrossEntropy(shift=1),
    "write": TokenCrossEntropy(),
}


@dataclass(frozen=True)
class Case:
    family: str
    head: str
    build: Callable[[], nn.Module]

    @property
    def task(self) -> str:
        return TASKS[self.head]

    @property
    def objective(self) -> Objective:
        return OBJECTIVES[self.task]

    def model(self) -> Model:
        module = self.build()
        roles = infer_parameter_roles(module)
        return Model(
            key=f"{self.family}-{self.head}",
            module=module,
            roles=roles.roles,
            embeddings_path=roles.embeddings_path,
            layers_path=roles.layers_path,
        )


def _build(config: Callable[..., Any], family: str, head: str) -> nn.Module:
    name = f"{family}{head}" if head in ("LMHeadModel", "MTModel") else f"{family}For{head}"
    settings = config(num_labels=2 if head == SPAN else LABELS)
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        module: nn.Module = getattr(hf, name)(settings)
        for p in module.parameters():  # so that no parameter is exactly 0 or 1
            p.data.add_(0.05 * torch.randn_like(p))
    return module


CASES = {
    f"{family} {head}": Case(family, head, partial(_build, config, family, head))
    for family, (config, heads) in FAMILIES.items()
    for head in heads
}


def random_features(case: Case, rows: int, max_length: int = 19, seed: int = 0) -> Features:
    """Make random texts of different lengths, with labels for the case's head."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, max_length + 1, rows)
    ids = [rng.integers(3, VOCABULARY, n).tolist() for n in lengths]
    columns: dict[str, Any] = {"input_ids": Ragged.from_lists(ids, PAD)}
    if case.task == "classify":
        columns["labels"] = rng.integers(0, LABELS, rows)
        if case.family in ("Bart", "T5"):  # they read the last </s>
            columns["input_ids"] = Ragged.from_lists([[*text[:-1], 2] for text in ids], PAD)
    elif case.task == "tag":
        classes = VOCABULARY if case.head == LM else LABELS
        columns["labels"] = Ragged.from_lists([rng.integers(0, classes, n).tolist() for n in lengths], IGNORE_INDEX)
    elif case.task == "span":
        columns["starts"], columns["ends"] = rng.integers(0, 2, rows), rng.integers(2, 5, rows)
    elif case.task == "next":
        columns["labels"] = Ragged.from_lists(ids, IGNORE_INDEX)
    else:
        targets = [rng.integers(3, VOCABULARY, max(2, n - 3)).tolist() for n in lengths]
        columns["labels"] = Ragged.from_lists(targets, IGNORE_INDEX)
        columns["decoder_input_ids"] = Ragged.from_lists([[2, *t[:-1]] for t in targets], PAD)
    return Features(f"{case.family}-{case.head}-{rows}", columns, pad_left=case.family == "XLNet")


def split_examples(features: Features, sizes: tuple[int, ...]) -> list[Examples]:
    """Give consecutive rows to clients of these sizes."""
    bounds = np.cumsum([0, *sizes])
    return [Examples(features, np.arange(start, end)) for start, end in pairwise(bounds)]
