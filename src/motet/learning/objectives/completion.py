"""Training and inference on completions: a causal model reads a prompt and its completion, and only the completion counts.

A batch has `input_ids` (prompt and completion, padded on the right), `labels` (the completion alone) and
`completion_start` (the position of its first token). Logits are computed for the completion's positions only: with a
large vocabulary, those of the prompt would cost as much as several layers. Nothing is masked: with causal attention, no
real token sees the padding behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from motet.core.messages import message
from motet.learning.data.features import IGNORE_INDEX
from motet.learning.objectives.readouts import Readout
from motet.learning.objectives.supervised import Batch, Forward, Objective, token_losses

# Batches are not masked on purpose (see above), so transformers' advice to pass a mask would mislead.
logging.getLogger("transformers.modeling_utils").addFilter(lambda record: "attention_mask" not in str(record.msg))
# Settings with which the logits are not simply the output layer of the last hidden states (Gemma, Granite, Cohere, …).
_LOGIT_TRANSFORMS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
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

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        losses = CompletionLoss().read(forward, batch)  # first: if memory is short, little time is lost
        generate = _GreedyDecoding(self.max_new_tokens)
        return {"predictions": forward.apply(generate, batch["input_ids"], batch["completion_start"]), **losses}


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
    states, compute_logits = _run(module, ids)
    return compute_logits(_gather(states, positions))


def _losses_at(module: Any, ids: Tensor, positions: Tensor, labels: Tensor) -> Tensor:
    """Run a causal model and return the loss of each label. Logits exist for a few tokens of every row at a time."""
    states, compute_logits = _run(module, ids)
    columns = max(1, _MAX_LOGITS // (len(ids) * module.config.get_text_config().vocab_size))
    parts = zip(positions.split(columns, 1), labels.split(columns, 1), strict=True)
    return torch.cat([token_losses(compute_logits(_gather(states, p)).float(), t) for p, t in parts], 1)


def _run(module: Any, ids: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Run a causal model. Return a state of each token, and the function that turns states into logits."""
    if any(getattr(module.config, name, None) not in (None, 1, 1.0) for name in _LOGIT_TRANSFORMS):
        return module(input_ids=ids, use_cache=False)["logits"], lambda logits: logits
    return module.base_model(input_ids=ids, use_cache=False)[0], module.get_output_embeddings()


def _gather(states: Tensor, positions: Tensor) -> Tensor:
    return states.gather(1, positions.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


@dataclass(frozen=True)
class _GreedyDecoding:
    max_new_tokens: int

    def __call__(self, module: Any, ids: Tensor, starts: Tensor) -> Tensor:
        """Generate completions; return [rows, max_new_tokens], padded with IGNORE_INDEX after the end token."""
        prompts, mask = _left_padded_prompts(ids, starts, int(module.config.pad_token_id))
        generated = module.generate(
            input_ids=prompts,
            attention_mask=mask,
            max_new_tokens=self.max_new_tokens,
            do_sample=False,
            num_beams=1,
            use_cache=True,
        )[:, prompts.shape[1] :]
        tokens = ids.new_full((len(ids), self.max_new_tokens), IGNORE_INDEX)
        tokens[:, : generated.shape[1]] = generated
        return tokens


def _left_padded_prompts(ids: Tensor, starts: Tensor, pad: int) -> tuple[Tensor, Tensor]:
    """Return the prompts, padded on the left for generation, and their attention mask."""
    width = int(starts.max())
    columns = torch.arange(width, device=ids.device) - (width - starts.unsqueeze(1))
    mask = columns >= 0
    prompts = ids.gather(1, columns.clamp(min=0))
    return torch.where(mask, prompts, pad), mask.long()
