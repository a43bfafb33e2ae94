"""A tokenized corpus on the device. Batches are selected by row number, without the host."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from motet.learning.data.features import Features, Ragged
from motet.learning.modules.frozen_prefix import FrozenPrefix

Widths = tuple[tuple[str, int], ...]  # of the ragged columns of one batch, by column


class DeviceDataset:
    """The columns of some features. With a frozen `prefix`, its hidden states replace the token ids.

    Hidden states are computed when a row is first needed.
    """

    def __init__(self, features: Features, device: torch.device, prefix: FrozenPrefix | None = None) -> None:
        self.features, self.device, self.prefix = features, device, prefix
        self.states: Tensor | None = None  # [tokens, width], indexed like the values of `input_ids`
        self.has_states = np.zeros(len(features), bool)
        self.values: dict[str, Tensor] = {}  # of ragged columns
        self.offsets: dict[str, Tensor] = {}
        self.dense: dict[str, Tensor] = {}
        self.completions = {name for name in features.columns if _completion_start(name) in features.columns}
        for name, column in features.columns.items():  # copied first, because a memory-mapped file may be read-only
            if isinstance(column, Ragged):
                values = column.values if len(column.values) else np.zeros(1, np.int32)
                self.values[name] = torch.from_numpy(np.array(values)).to(device)
                self.offsets[name] = torch.from_numpy(np.array(column.offsets)).to(device)
            else:
                self.dense[name] = torch.from_numpy(np.array(column)).to(device)

    def batch(self, rows: Tensor, widths: dict[str, int]) -> dict[str, Tensor]:
        tensors = {name: column[rows] for name, column in self.dense.items()}
        for name, values in self.values.items():
            column = self.features.columns[name]
            pad = column.pad if isinstance(column, Ragged) else 0
            tensors[name], mask, positions = pad_ragged(
                values, self.offsets[name], rows, widths[name], pad, self.features.pad_left
            )
            if name == "input_ids":
                tensors["attention_mask"] = mask.long()
                if self.states is not None:
                    tensors["inputs_embeds"] = torch.where(mask.unsqueeze(-1), self.states[positions], 0)
        if self.states is not None:
            del tensors["input_ids"]
            tensors.pop("token_type_ids", None)
        return tensors

    def fill(self, rows: np.ndarray, max_tokens: int = 2**16) -> None:
        """Compute the prefix's hidden states of rows that were not needed before."""
        missing = np.unique(rows[~self.has_states[rows]]) if self.prefix is not None else rows[:0]
        missing = missing[np.argsort(self.features.lengths[missing], kind="stable")]
        while self.prefix is not None and len(missing):
            count = max(1, max_tokens // round_up_width(int(self.features.lengths[missing[-1]])))
            longest, missing = missing[-count:], missing[:-count]
            self._compute_states(longest, self.prefix)

    def _compute_states(self, rows: np.ndarray, prefix: FrozenPrefix) -> None:
        states, self.states = self.states, None  # so that `batch` returns token ids
        index = torch.from_numpy(rows).to(self.device)
        batch = self.batch(index, self.batch_widths(rows))
        hidden = prefix.hidden_states(batch)
        if states is None:
            states = torch.zeros(len(self.values["input_ids"]), hidden.shape[-1], device=self.device)
        mask = batch["attention_mask"].bool()
        positions = self.offsets["input_ids"][index].unsqueeze(1) + torch.arange(mask.shape[1], device=self.device)
        states[positions[mask]] = hidden[mask].to(states.dtype)
        self.states = states
        self.has_states[rows] = True

    def batch_widths(self, rows: np.ndarray) -> dict[str, int]:
        """Return the widths of one batch of these rows."""
        return dict(self._round_up_widths(rows.reshape(1, 1, -1), np.ones((1, 1), bool), set())[0])

    def step_widths(self, rows: np.ndarray, is_read: np.ndarray) -> list[Widths]:
        """Return the widths of each step's batch: its longest text, rounded up to a few sizes that recur.

        `rows` is [steps, clients, rows]; `is_read` [steps, clients] marks the clients that a step computes. Every pair
        of a text's and a completion's width is a step to capture. Wider completions cost only logits, so they get
        fewer sizes than texts: on P3, half as many steps are captured.
        """
        return self._round_up_widths(rows, is_read, self.completions)

    def _round_up_widths(self, rows: np.ndarray, is_read: np.ndarray, coarse: set[str]) -> list[Widths]:
        widths: list[dict[str, int]] = [{} for _ in rows]
        for name in self.values:
            column = self.features.columns[name]
            if isinstance(column, Ragged):
                longest = (column.lengths[rows] * is_read[:, :, None]).max(axis=(1, 2))
                round_up = _round_up_coarsely if name in coarse else round_up_width
                for step, width in enumerate(longest):
                    widths[step][name] = min(round_up(int(width)), column.max_length)
        return [tuple(by_column.items()) for by_column in widths]


def pad_ragged(
    values: Tensor, offsets: Tensor, rows: Tensor, width: int, pad: int, left: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows of a ragged column as a matrix, the mask of its real values, and their positions in `values`."""
    starts, ends = offsets[rows].unsqueeze(1), offsets[rows + 1].unsqueeze(1)
    columns = torch.arange(width, device=values.device)
    if left:
        columns = columns - (width - (ends - starts))
    mask = (columns >= 0) & (columns < ends - starts)
    positions = torch.where(mask, starts + columns, 0)
    return torch.where(mask, values[positions].long(), pad), mask, positions


def round_up_width(width: int) -> int:
    """Round up to a multiple of 8 up to 32, of 16 up to 128, and of 64 beyond."""
    multiple = 8 if width <= 32 else 16 if width <= 128 else 64
    return max(multiple, -(-width // multiple) * multiple)


def _round_up_coarsely(width: int) -> int:
    """Round up to 16, or to a multiple of 64."""
    return 16 if width <= 16 else -(-width // 64) * 64


def _completion_start(labels: str) -> str | None:
    """Return the column with the starts of the completions, if this is the name of their labels."""
    return f"{labels.removesuffix('labels')}completion_start" if labels.endswith("labels") else None
