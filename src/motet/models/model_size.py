"""Checks whether a model fits into the memory of this machine, before it is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import psutil
import torch

from motet.core.errors import ConfigError
from motet.models.load_model import BERT2BERT_PREFIX, MULTITASK_PREFIX, TextSource, build_module
from motet.models.model_config import ModelConfig

COPIES = 2  # of the weights, at least: the model and its gradients, or what is sent


def check_memory(config: ModelConfig, task: str, labels: Sequence[str], texts: TextSource) -> None:
    """Raise an error if a model with settings of the run cannot fit. A model without them is one that this machine chose."""
    if not config.config:
        return
    size, memory = 4 * COPIES * _count_numbers(config, task, labels, texts), psutil.virtual_memory().total
    if size > memory:
        raise ConfigError(
            f"model.config asks for a model that needs {size / 1e9:.0f} GB, and this machine has {memory / 1e9:.0f} GB. "
            "Ask for a smaller model."
        )


def _count_numbers(config: ModelConfig, task: str, labels: Sequence[str], texts: TextSource) -> int:
    """Return how many weights a model has. They get no memory."""
    name = config.name.replace(
        BERT2BERT_PREFIX, MULTITASK_PREFIX
    )  # the same encoder and decoder, without their weights
    with torch.device("meta"):
        module, _ = build_module(replace(config, name=name, from_scratch=True), task, labels, texts)
    return sum(parameter.numel() for parameter in module.parameters())
