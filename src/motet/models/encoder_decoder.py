"""BERT2BERT (Rothe et al. 2020): an encoder and a decoder that start from the same pretrained encoder."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from motet.core.errors import ConfigError, first_line
from motet.models.loading_permissions import REMOTE_CODE_ADVICE, loader_options, loading


def load_bert2bert(path: str, tokenizer: Any, config_overrides: Mapping[str, Any]) -> Any:
    """Load an encoder-decoder from a pretrained encoder. The decoder's cross-attention starts from random weights."""
    import transformers

    options = {**config_overrides, **loader_options()}
    overrides = {f"{part}_{name}": v for part in ("encoder", "decoder") for name, v in options.items()}
    try:
        with loading(path):
            model = transformers.EncoderDecoderModel.from_encoder_decoder_pretrained(path, path, **overrides)
    except (OSError, ValueError, KeyError, TypeError) as error:
        advice = REMOTE_CODE_ADVICE if "trust_remote_code" in str(error) else "Use an encoder of the BERT family."
        raise ConfigError(
            f"model.name: '{path}' cannot be used for BERT2BERT ({first_line(error)}). {advice}"
        ) from None
    return set_special_tokens(model, tokenizer)


def init_encoder_decoder(encoder_config: Any, tokenizer: Any) -> Any:
    """Build an encoder-decoder with random weights from the configuration of an encoder."""
    import transformers

    decoder_config = copy.deepcopy(encoder_config)
    decoder_config.is_decoder, decoder_config.add_cross_attention = True, True
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder_config, decoder_config)
    return set_special_tokens(transformers.EncoderDecoderModel(config), tokenizer)


def set_special_tokens(model: Any, tokenizer: Any) -> Any:
    """Let generation start with [CLS] and end with [SEP], or with the tokenizer's own start and end tokens."""
    start = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
    end = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    for config in (model.config, model.generation_config):
        config.decoder_start_token_id, config.eos_token_id, config.pad_token_id = start, end, tokenizer.pad_token_id
    return model
