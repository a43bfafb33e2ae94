"""Training and inference on completions: a causal model reads a prompt and its completion, and only the completion counts.

A batch has `input_ids` (prompt and completion, padded on the right), `labels` (the completion alone) and
`completion_start` (the position of its first token). Logits are computed for the completion's positions only: with a
large vocabulary, those of the prompt would cost as much as several layers. Nothing is masked: with causal attention, no
real token sees the padding behind it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from motet.core.messages import message
from motet.learning.data.features import IGNORE_INDEX
from motet.learning.objectives.readouts import PLAIN_GENERATION, Readout
from motet.learning.objectives.supervised import Batch, Forward, Objective, token_losses

# Batches are not masked on purpose (see above), so transformers' advice to pass a mask would mislead.
logging.getLogger("transformers.modeling_utils").addFilter(lambda record: "attention_mask" not in str(record.msg))
# Settings with which the logits are not simply the output layer of the last hidden states (Gemma, Granite, Cohere, …).
_LOGIT_TRANSFORMS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
ComputeLogits = Callable[[Tensor], Tensor]
_MAX_LOGITS = 2**28  # at a time, where no gradient is needed: 1 GB in float32


@message
@dataclass(frozen=True)
class CompletionCrossEntropy(Objective):
    """Cross-entropy of the completion's tokens; an example's weight is their number."""

    needs_full_model: ClassVar[bool] = True

    def losses(self, forward: Forward, batch: Batch) -> tuple[Tensor, Tensor]:
        per_token = token_losses(completion_logits(forward, batch).float(), batch["labels"])
        count = (batch["labels"] != IGNORE_INDEX).sum(1)
        return per_token.sum(1) / count.clamp(min=1), count.float()


@message
@dataclass(frozen=True)
class CompletionLoss(Readout):
    """The loss summed over each completion, and the number of its tokens."""

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        labels = batch["labels"]
        per_token = forward.apply(_losses_at, batch["input_ids"], _label_positions(batch), labels, masked=False)
        return {"loss": per_token.sum(1), "count": (labels != IGNORE_INDEX).sum(1)}


@message
@dataclass(frozen=True)
class GeneratedCompletions(Readout):
    """Token ids of greedily generated completions, and the loss of the true ones."""

    chunk_rows: ClassVar[int] = 16  # generation is slow, so that workers share even a few prompts
    max_new_tokens: int = 64

    @property
    def max_written_tokens(self) -> int:
        return self.max_new_tokens

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        decoding = _GreedyDecoding(self.max_new_tokens)
        tokens = forward.apply(decoding.generate, batch["input_ids"], batch["completion_start"])
        if not decoding.can_continue(forward.module):
            return {"predictions": tokens, **CompletionLoss().read(forward, batch)}
        labels = batch["labels"]
        losses = forward.apply(decoding.compute_losses, labels)
        return {"predictions": tokens, "loss": losses.sum(1), "count": (labels != IGNORE_INDEX).sum(1)}


def completion_logits(forward: Forward, batch: Batch) -> Tensor:
    """Return the logits that predict each token of `labels`, [rows, tokens, vocabulary]."""
    return forward.apply(_logits_at, batch["input_ids"], _label_positions(batch), masked=False)


def _label_positions(batch: Batch) -> Tensor:
    """Return the positions whose logits predict `labels`, [rows, tokens]."""
    labels, ids = batch["labels"], batch["input_ids"]
    offsets = torch.arange(labels.shape[1], device=ids.device)
    return (batch["completion_start"].unsqueeze(1) - 1 + offsets).clamp(max=ids.shape[1] - 1)


def _logits_at(module: Any, ids: Tensor, positions: Tensor) -> Tensor:
    """Run a causal model and return its logits at `positions`, [rows, tokens]."""
    states, compute_logits = _run(module, input_ids=ids, use_cache=False)
    return compute_logits(_gather(states, positions))


def _losses_at(module: Any, ids: Tensor, positions: Tensor, labels: Tensor) -> Tensor:
    """Run a causal model and return the loss of each label."""
    states, compute_logits = _run(module, input_ids=ids, use_cache=False)
    return _losses(module, _gather(states, positions), compute_logits, labels)


def _losses(module: Any, states: Tensor, compute_logits: ComputeLogits, labels: Tensor) -> Tensor:
    """Return the loss of each label. Logits exist for a few tokens of every row at a time."""
    columns = max(1, _MAX_LOGITS // (len(labels) * module.config.get_text_config().vocab_size))
    parts = [slice(start, start + columns) for start in range(0, labels.shape[1], columns)]
    return torch.cat([token_losses(compute_logits(states[:, part]).float(), labels[:, part]) for part in parts], 1)


def _run(module: Any, **inputs: Any) -> tuple[Tensor, ComputeLogits]:
    """Run a causal model. Return a state of each token, and the function that turns states into logits."""
    if any(getattr(module.config, name, None) not in (None, 1, 1.0) for name in _LOGIT_TRANSFORMS):
        return module(**inputs)["logits"], lambda logits: logits
    return module.base_model(**inputs)[0], module.get_output_embeddings()


def _gather(states: Tensor, positions: Tensor) -> Tensor:
    return states.gather(1, positions.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


class _GreedyDecoding:
    """Generates completions. What it computes for the prompts is kept, so that the loss needs no second pass over them."""

    def __init__(self, max_new_tokens: int) -> None:
        self.max_new_tokens = max_new_tokens
        self.mask = self.last_tokens = torch.zeros(0, 0)
        self.cache: Any = None

    def generate(self, module: Any, ids: Tensor, starts: Tensor) -> Tensor:
        """Generate completions; return [rows, max_new_tokens], padded with IGNORE_INDEX after the end token."""
        prompts, self.mask = _left_padded_prompts(ids, starts, int(module.config.pad_token_id))
        output = module.generate(
            input_ids=prompts,
            attention_mask=self.mask,
            max_new_tokens=self.max_new_tokens,
            **PLAIN_GENERATION,
            no_repeat_ngram_size=0,
            min_length=0,
            num_beams=1,
            use_cache=True,
            return_dict_in_generate=True,
        )
        self.cache, self.last_tokens = output.past_key_values, prompts[:, -1:]
        generated = output.sequences[:, prompts.shape[1] :]
        tokens = ids.new_full((len(ids), self.max_new_tokens), IGNORE_INDEX)
        tokens[:, : generated.shape[1]] = generated
        return tokens

    def can_continue(self, module: Any) -> bool:
        """True if the cache can go back to the end of the prompts, and the model reads positions."""
        from transformers.cache_utils import Cache, DynamicLayer

        reads_positions = "position_ids" in inspect.signature(module.base_model.forward).parameters
        is_plain = isinstance(self.cache, Cache) and all(type(layer) is DynamicLayer for layer in self.cache.layers)
        return reads_positions and is_plain

    def compute_losses(self, module: Any, labels: Tensor) -> Tensor:
        """Return the loss of each label, [rows, tokens]."""
        width = self.mask.shape[1] - 1  # the last token of a prompt predicts the first label
        self.cache.crop(width - self.cache.get_seq_length())  # negative: the number of tokens to remove
        inputs = torch.cat([self.last_tokens, labels[:, :-1].clamp(min=0)], 1)
        # Without the padding of labels, whose positions could be beyond those of the model.
        mask = torch.cat([self.mask, (labels[:, :-1] != IGNORE_INDEX).long()], 1)
        states, compute_logits = _run(
            module,
            input_ids=inputs,
            attention_mask=mask,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0)[:, width:],
            past_key_values=self.cache,
            use_cache=True,
        )
        return _losses(module, states, compute_logits, labels)


def _left_padded_prompts(ids: Tensor, starts: Tensor, pad: int) -> tuple[Tensor, Tensor]:
    """Return the prompts, padded on the left for generation, and their attention mask."""
    width = int(starts.max())
    columns = torch.arange(width, device=ids.device) - (width - starts.unsqueeze(1))
    mask = columns >= 0
    prompts = ids.gather(1, columns.clamp(min=0))
    return torch.where(mask, prompts, pad), mask.long()
