"""BERT2BERT (Rothe et al. 2020): an encoder and a decoder, both begun from the same pretrained encoder."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from motet.core.errors import ConfigError, first_line


def load_bert2bert(where: str, tokenizer: Any, changes: Mapping[str, Any]) -> Any:
    """The decoder gets cross-attention and a language-model head of its own; weights are those of `where`."""
    import transformers

    options = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in changes.items()}
    try:
        model = transformers.EncoderDecoderModel.from_encoder_decoder_pretrained(where, where, **options)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"model.name: no BERT2BERT could be made from '{where}' ({first_line(error)}); it needs an encoder of BERT's kind."
        ) from None
    return set_special_tokens(model, tokenizer)


def init_encoder_decoder(encoder: Any, tokenizer: Any) -> Any:
    """The same with random weights, from an encoder's configuration."""
    import transformers

    decoder = copy.deepcopy(encoder)
    decoder.is_decoder, decoder.add_cross_attention = True, True
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    return set_special_tokens(transformers.EncoderDecoderModel(config), tokenizer)


def set_special_tokens(model: Any, tokenizer: Any) -> Any:
    """Writing begins with [CLS] and ends with [SEP]."""
    begin = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
    end = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    for config in (model.config, model.generation_config):
        config.decoder_start_token_id, config.eos_token_id, config.pad_token_id = begin, end, tokenizer.pad_token_id
    return model
