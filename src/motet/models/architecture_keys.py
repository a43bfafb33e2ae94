"""The settings of an architecture that a recipe may change (`model.config`).

The list is closed. `from_pretrained` takes settings of the architecture and options of the loader from the same keyword
arguments, and some of those options run code or read other files. A recipe may come from a server or another person.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from motet.core.errors import ConfigError
from motet.core.suggestions import did_you_mean

_TRANSFORMER_KEYS = (  # BERT, Llama and their families
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "hidden_act", "max_position_embeddings", "type_vocab_size", "hidden_dropout_prob", "attention_probs_dropout_prob",
    "classifier_dropout", "layer_norm_eps", "rms_norm_eps", "initializer_range", "tie_word_embeddings", "embedding_size",
    "num_hidden_groups", "inner_group_num", "pooler_dropout", "attention_bias", "mlp_bias", "rope_theta", "sliding_window",
)  # fmt: skip
_DISTILBERT_KEYS = (
    "dim", "hidden_dim", "n_layers", "n_heads", "qa_dropout", "seq_classif_dropout", "activation", "sinusoidal_pos_embds",
)  # fmt: skip
_GPT2_KEYS = (
    "n_embd", "n_layer", "n_head", "n_inner", "n_positions", "resid_pdrop", "embd_pdrop", "attn_pdrop",
    "activation_function", "layer_norm_epsilon",
)  # fmt: skip
_SEQ2SEQ_KEYS = (  # BART, T5
    "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim",
    "decoder_ffn_dim", "encoder_layerdrop", "decoder_layerdrop", "dropout", "attention_dropout", "activation_dropout",
    "d_kv", "d_ff", "num_layers", "num_decoder_layers", "num_heads", "dropout_rate", "relative_attention_num_buckets",
    "relative_attention_max_distance",
)  # fmt: skip
_BILSTM_KEYS = ("embedding_dim",)
ARCHITECTURE_KEYS = frozenset((*_TRANSFORMER_KEYS, *_DISTILBERT_KEYS, *_GPT2_KEYS, *_SEQ2SEQ_KEYS, *_BILSTM_KEYS))
ACTIVATION_KEYS = ("hidden_act", "activation", "activation_function")
ACTIVATIONS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "relu", "silu", "swish", "tanh")
LAYER_KEYS = (
    "num_hidden_layers", "n_layers", "n_layer", "encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers",
    "num_hidden_groups", "inner_group_num",
)  # fmt: skip
MAX_NUMBER = 2**24  # a larger model would not fit in memory
MAX_LAYERS = 1000  # each takes time, however small it is


def check_architecture(settings: Mapping[str, Any]) -> None:
    """Raise an error unless all settings are known settings of an architecture with values of the right type."""
    for name, value in settings.items():
        if name not in ARCHITECTURE_KEYS:
            raise ConfigError(
                f"model.config: '{name}' is not a setting of an architecture that a recipe may change; expected one such "
                f"as num_hidden_layers, hidden_size or hidden_dropout_prob.{did_you_mean(str(name), ARCHITECTURE_KEYS)}"
            )
        if name in ACTIVATION_KEYS:
            if value not in ACTIVATIONS:
                raise ConfigError(f"model.config.{name} is {value!r}; expected one of {', '.join(ACTIVATIONS)}.")
        elif not _is_number(value, limit := MAX_LAYERS if name in LAYER_KEYS else MAX_NUMBER):
            raise ConfigError(f"model.config.{name} is {value!r}; expected a number up to {limit:,}.")


def _is_number(value: Any, limit: int) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value) and abs(value) <= limit)
