"""Sequence classifiers that read the last end token of a text (T5, BART), in steps that can be captured.

transformers compares the numbers of end tokens in a batch and selects with a mask. Both wait for the device. Here the
position is computed, and the numbers are compared when a corpus is first used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from motet.core.errors import DataError
from motet.learning.data.features import Features, Ragged


class EndTokenClassifier(nn.Module):
    """Mixed in before a classifier of transformers. For texts with equally many end tokens it computes the same."""

    config: Any
    base_model: nn.Module
    classification_head: nn.Module

    def forward(self, input_ids: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        shift_right = getattr(self, "_shift_right", None)  # the base model of BART does it itself
        if shift_right is not None and "decoder_input_ids" not in inputs:
            inputs["decoder_input_ids"] = shift_right(input_ids)
        hidden: Tensor = self.base_model(input_ids=input_ids, **inputs)[0]
        is_end = input_ids == self.config.eos_token_id
        last = (is_end * torch.arange(is_end.shape[1], device=is_end.device)).amax(1)
        selected = hidden.gather(1, last.view(-1, 1, 1).expand(-1, -1, hidden.shape[-1])).squeeze(1)
        counts = is_end.sum(1, keepdim=True)
        is_wrong = (counts != counts[:1]) | (counts == 0)  # an error in transformers; no loss may hide it
        return {"logits": self.classification_head(selected.masked_fill(is_wrong, torch.nan))}


def install_end_token_classifier(module: nn.Module) -> None:
    """Replace such a classifier in place. Whether it computes the same is compared when the packing is chosen."""
    for submodule in list(module.modules()):
        if _reads_end_token(submodule):
            cls = type(submodule)
            submodule.__class__ = type(f"Packed{cls.__name__}", (EndTokenClassifier, cls), {})


def check_end_tokens(module: nn.Module, features: Features) -> None:
    """Reject a corpus that such a classifier cannot read: all texts need the same number of end tokens, and at least one."""
    classifier: Any = next(filter(_reads_end_token, module.modules()), None)
    ids = features.columns.get("input_ids")
    if classifier is None or not isinstance(ids, Ragged) or not len(ids):
        return
    end = classifier.config.eos_token_id
    ends_before = np.concatenate([[0], np.cumsum(ids.values == end)])
    counts = np.diff(ends_before[ids.offsets])
    if ids.pad == end:
        counts += ids.max_length - ids.lengths
    row = int(np.argmax(counts != counts[0]))
    if counts.any() and counts[row] == counts[0]:
        return
    problem = f"text 0 has {counts[0]} and text {row} has {counts[row]}" if counts.any() else "no text has one"
    raise DataError(
        f"{type(classifier).__name__} reads the last end token of a text (id {end}) and needs the same number in every text, "
        f"at least one, but {problem}; remove end tokens that are written in the texts, or choose another model."
    )


def _reads_end_token(module: nn.Module) -> bool:
    is_classifier = type(module).__name__.endswith("ForSequenceClassification")
    has_head = "classification_head" in dict(module.named_children())
    return is_classifier and has_head and getattr(getattr(module, "config", None), "is_encoder_decoder", False)
