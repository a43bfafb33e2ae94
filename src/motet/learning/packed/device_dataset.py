"""Texts that lie on the device: a batch is taken out of them by number, without the host."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from motet.learning.data.features import Features, Ragged
from motet.learning.modules.frozen_prefix import FrozenPrefix

Widths = tuple[tuple[str, int], ...]  # of the ragged columns of one batch


class DeviceDataset:
    """The columns of some features; with a frozen `prefix` its states instead of the token ids, as rows are first needed."""

    def __init__(self, features: Features, device: torch.device, prefix: FrozenPrefix | None = None) -> None:
        self.features, self.device, self.prefix = features, device, prefix
        self.states: Tensor | None = None
        self.known = np.zeros(len(features), bool)
        self.flat: dict[str, Tensor] = {}
        self.first: dict[str, Tensor] = {}
        self.whole: dict[str, Tensor] = {}
        for name, column in features.columns.items():
            if isinstance(column, Ragged):
                values = column.values if len(column.values) else np.zeros(1, np.int32)
                self.flat[name] = torch.from_numpy(np.array(values)).to(
                    device
                )  # a copy: a mapped file may not be written to
                self.first[name] = torch.from_numpy(np.array(column.offsets)).to(device)
            else:
                self.whole[name] = torch.from_numpy(np.array(column)).to(device)

    @property
    def bytes(self) -> int:
        return sum(
            t.numel() * t.element_size() for t in (*self.flat.values(), *self.first.values(), *self.whole.values())
        )

    def batch(self, rows: Tensor, widths: dict[str, int]) -> dict[str, Tensor]:
        tensors = {name: column[rows] for name, column in self.whole.items()}
        for name, values in self.flat.items():
            column = self.features.columns[name]
            pad = column.pad if isinstance(column, Ragged) else 0
            tensors[name], real, where = rectangle(
                values, self.first[name], rows, widths[name], pad, self.features.pad_left
            )
            if name == "input_ids":
                tensors["attention_mask"] = real.long()
                if self.states is not None:
                    tensors["inputs_embeds"] = torch.where(real.unsqueeze(-1), self.states[where], 0)
        if self.states is not None:
            del tensors["input_ids"]
            tensors.pop("token_type_ids", None)
        return tensors

    def fill(self, rows: np.ndarray, tokens: int = 2**16) -> None:
        """Compute the prefix's states of those rows that were not needed before."""
        missing = np.unique(rows[~self.known[rows]]) if self.prefix is not None else rows[:0]
        missing = missing[np.argsort(self.features.lengths[missing], kind="stable")]
        while self.prefix is not None and len(missing):
            count = max(1, tokens // round_up_width(int(self.features.lengths[missing[-1]])))
            some, missing = missing[-count:], missing[:-count]
            self._keep(some, self.prefix)

    def _keep(self, rows: np.ndarray, prefix: FrozenPrefix) -> None:
        states, self.states = self.states, None  # a batch of the texts themselves
        index = torch.from_numpy(rows).to(self.device)
        batch = self.batch(index, self.widths_of(rows))
        hidden = prefix.hidden_states(batch)
        if states is None:
            states = torch.zeros(len(self.flat["input_ids"]), hidden.shape[-1], device=self.device)
        real = batch["attention_mask"].bool()
        places = self.first["input_ids"][index].unsqueeze(1) + torch.arange(real.shape[1], device=self.device)
        states[places[real]] = hidden[real].to(states.dtype)
        self.states = states
        self.known[rows] = True

    def widths_of(self, rows: np.ndarray) -> dict[str, int]:
        """For one batch of these rows."""
        return dict(self.widths(rows.reshape(1, 1, -1), np.ones((1, 1), bool))[0])

    def widths(self, index: np.ndarray, read: np.ndarray) -> list[Widths]:
        """How wide each step's batch [steps, clients, rows] must be, of which `read` [steps, clients] are read: as the longest
        text, in a few sizes that recur."""
        found: list[dict[str, int]] = [{} for _ in index]
        for name in self.flat:
            column = self.features.columns[name]
            if isinstance(column, Ragged):
                longest = (column.lengths[index] * read[:, :, None]).max(axis=(1, 2))
                for step, width in enumerate(longest):
                    found[step][name] = min(round_up_width(int(width)), column.max_length)
        return [tuple(sizes.items()) for sizes in found]


def rectangle(
    values: Tensor, offsets: Tensor, rows: Tensor, width: int, pad: int, left: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Some rows of a ragged column side by side, where in the rectangle they really are, and where in `values` that is."""
    first, last = offsets[rows].unsqueeze(1), offsets[rows + 1].unsqueeze(1)
    places = torch.arange(width, device=values.device)
    if left:
        places = places - (width - (last - first))
    real = (places >= 0) & (places < last - first)
    where = torch.where(real, first + places, 0)
    return torch.where(real, values[where].long(), pad), real, where


def round_up_width(width: int) -> int:
    """To a multiple of 8 up to 32, of 16 up to 128, of 64 beyond."""
    by = 8 if width <= 32 else 16 if width <= 128 else 64
    return max(by, -(-width // by) * by)
