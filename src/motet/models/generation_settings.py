"""Settings that come with a pretrained model and its tokenizer, made fit for training, generation and export."""

from __future__ import annotations

from typing import Any

from motet.core.errors import ConfigError, first_line
from motet.learning.data.chat_format import find_end_token
from motet.learning.modules.token_embeddings import count_token_embeddings
from motet.models.word_vocabulary import CHAT_TEMPLATE

# Settings without effect unless the model samples, and unless it searches with beams.
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")
_BEAMS = ("early_stopping", "length_penalty")


def choose_padding(module: Any, tokenizer: Any) -> None:
    """Give the tokenizer a padding token that the model knows. Some tokenizers add one that has no embedding."""
    count = count_token_embeddings(module)
    if tokenizer.pad_token is None or (count is not None and tokenizer.pad_token_id >= count):
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    config = getattr(module, "config", None)
    if config is not None and getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = tokenizer.pad_token_id


def prepare_generation(module: Any, tokenizer: Any, has_word_vocabulary: bool) -> None:
    """Stop generation where the chat template ends an answer, which need not be the model's end-of-text token."""
    if has_word_vocabulary:
        tokenizer.chat_template = CHAT_TEMPLATE
    settings = module.generation_config
    ends = settings.eos_token_id if isinstance(settings.eos_token_id, list) else [settings.eos_token_id]
    ends = [token for token in dict.fromkeys([*ends, find_end_token(tokenizer)]) if token is not None]
    settings.eos_token_id, settings.pad_token_id = ends or None, tokenizer.pad_token_id


def remove_unused_settings(module: Any, name: str) -> None:
    """Remove settings of generation without effect, such as a temperature without sampling.

    transformers loads a model with them, but refuses to save it.
    """
    settings = getattr(module, "generation_config", None)
    if settings is None:
        return
    unused = (*(() if settings.do_sample else _SAMPLING), *(() if (settings.num_beams or 1) > 1 else _BEAMS))
    for setting in unused:
        setattr(settings, setting, None)
    try:
        settings.validate(strict=True)
    except ValueError as error:
        raise ConfigError(
            f"model.name: the generation_config.json of {name} is not valid, so that the trained model could not be "
            f"saved ({first_line(error)}). Fix the file, or delete it."
        ) from None
