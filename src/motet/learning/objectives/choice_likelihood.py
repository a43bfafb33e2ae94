"""Which of a few given answers a causal model finds most likely.

A batch has two more columns than a completion's (see `completion`): `choice_ids`, the tokens of all answers of a row one
after another, and `choice_lengths`, the number of tokens of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from motet.core.messages import message
from motet.learning.data.features import IGNORE_INDEX
from motet.learning.objectives.completion import CompletionLoss, GeneratedCompletions
from motet.learning.objectives.readouts import Readout
from motet.learning.objectives.supervised import Batch, Forward


@message
@dataclass(frozen=True)
class CompletionsAndChoices(Readout):
    """Greedily generated completions, and the index of the most likely choice; -1 for rows without choices."""

    chunk_rows: ClassVar[int] = GeneratedCompletions.chunk_rows
    max_new_tokens: int = 64

    @property
    def max_written_tokens(self) -> int:
        return self.max_new_tokens

    def read(self, forward: Forward, batch: Batch) -> dict[str, Tensor]:
        return {**GeneratedCompletions(self.max_new_tokens).read(forward, batch), "choice": _choose(forward, batch)}


def _choose(forward: Forward, batch: Batch) -> Tensor:
    lengths = batch["choice_lengths"]
    has_choice = lengths > 0
    if not lengths.shape[1] or not bool(has_choice.any()):
        return torch.full((len(lengths),), -1, device=lengths.device)
    losses = [CompletionLoss().read(forward, _with_choice(batch, k))["loss"] for k in range(lengths.shape[1])]
    best = torch.stack(losses, 1).masked_fill(~has_choice, torch.inf).argmin(1)
    return torch.where(has_choice.any(1), best, -1)


def _with_choice(batch: Batch, k: int) -> dict[str, Tensor]:
    """Return a batch in which the k-th choice of each row is its completion."""
    ids, starts, lengths = batch["input_ids"], batch["completion_start"].unsqueeze(1), batch["choice_lengths"]
    begins, size = lengths[:, :k].sum(1, keepdim=True), lengths[:, k : k + 1]
    columns = torch.arange(max(1, int(size.max())), device=ids.device)
    tokens = batch["choice_ids"].gather(1, (begins + columns).clamp(max=batch["choice_ids"].shape[1] - 1))
    positions = torch.arange(int((starts + size).max()), device=ids.device)
    prompt = ids[:, : len(positions)]
    prompt = torch.nn.functional.pad(prompt, (0, len(positions) - prompt.shape[1]))
    answer = tokens.gather(1, (positions - starts).clamp(0, len(columns) - 1))
    return {
        "input_ids": torch.where(positions < starts, prompt, answer),
        "labels": tokens.masked_fill(columns >= size, IGNORE_INDEX),
        "completion_start": batch["completion_start"],
    }
