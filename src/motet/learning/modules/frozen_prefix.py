"""The frozen prefix: where embeddings and lower layers are frozen, their output for a text never changes.

It is computed once for each text, kept in a memory-mapped file that all workers share, and only what moves is trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from motet.learning.data.features import Examples, Features
from motet.learning.modules.model import Model, copy_sharing_parameters, select_model_inputs

TOLERANCE = 1e-4  # of the logits; float32 with other batch shapes gives 1e-6


class _Reached(Exception):  # noqa: N818 - no error: the way out of a forward pass whose rest is not needed
    pass


class _Feed(nn.Module):
    """Stands where the embeddings were and hands on what it is given."""

    def forward(self, *args: Tensor | None, **options: Tensor | None) -> Tensor:
        given = [t for t in (*args, *options.values()) if isinstance(t, Tensor) and t.is_floating_point()]
        return next(t for t in given if t.dim() == 3)


class FrozenPrefix:
    """A model cut into the layers that are frozen from the bottom up, and the rest."""

    def __init__(self, model: Model) -> None:
        self.model, self.depth = model, model.num_frozen_layers
        self.lower = copy_sharing_parameters(model.module).eval()
        self.upper = copy_sharing_parameters(model.module)
        stack = list(self.upper.get_submodule(model.layers_path).children())[self.depth :]
        _put(self.upper, model.embeddings_path, _Feed())
        _put(self.upper, model.layers_path, nn.ModuleList(stack))
        layers = list(self.lower.get_submodule(model.layers_path).children())
        if self.depth < len(layers):
            layers[self.depth].register_forward_pre_hook(self._stop, with_kwargs=True)
        else:
            layers[-1].register_forward_hook(self._stop_after)
        self._seen: Tensor | None = None

    def _stop(self, _: nn.Module, args: tuple[Tensor, ...], options: dict[str, Tensor]) -> None:
        self._seen = args[0] if args else options["hidden_states"]
        raise _Reached

    def _stop_after(self, _: nn.Module, args: tuple[Tensor, ...], output: Tensor | tuple[Tensor, ...]) -> None:
        self._seen = output if isinstance(output, Tensor) else output[0]
        raise _Reached

    @torch.no_grad()
    def hidden(self, batch: Mapping[str, Tensor]) -> Tensor:
        """[rows, tokens, width]: what the first trained layer is given."""
        with suppress(_Reached):
            self.lower(**select_model_inputs(batch))
        if self._seen is None:
            raise RuntimeError("the forward pass never came to the first trained layer")
        seen, self._seen = self._seen, None
        return seen


def cut_frozen_prefix(model: Model, probe: Mapping[str, Tensor]) -> FrozenPrefix | None:
    """The cut model, if the family can be cut: decided by comparing outputs on a small batch, not by a list of names."""
    if not model.num_frozen_layers or not model.embeddings_path:
        return None
    try:
        prefix = FrozenPrefix(model)
        with torch.no_grad():
            whole = copy_sharing_parameters(model.module).eval()(**select_model_inputs(probe))["logits"]
            cut = prefix.upper.eval()(inputs_embeds=prefix.hidden(probe), attention_mask=probe["attention_mask"])[
                "logits"
            ]
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError, StopIteration):
        return None
    gap = float((whole - cut).norm() / (whole.norm() + 1e-9))
    return prefix if gap < TOLERANCE else None  # a NaN is not below


class HiddenStates:
    """The prefix's output for every row of some features, filled in as rows are first needed. Shared between processes."""

    def __init__(self, prefix: FrozenPrefix, features: Features, width: int, folder: Path) -> None:
        self.prefix, self.features = prefix, features
        offsets = np.zeros(len(features) + 1, np.int64)
        np.cumsum(features.lengths, out=offsets[1:])
        self.offsets = offsets
        shape = (max(1, int(offsets[-1])), width)
        self.values = np.memmap(folder / f"{features.key}.hidden", np.float32, "w+", shape=shape)
        self.known = np.memmap(folder / f"{features.key}.known", np.uint8, "w+", shape=(max(1, len(features)),))

    @staticmethod
    def bytes_for(features: Features, width: int) -> int:
        return int(features.lengths.sum()) * width * 4

    def fill(self, rows: np.ndarray, batch: int = 32) -> None:
        """Compute what is not known yet. Two workers may do the same row; they write the same numbers."""
        missing = rows[self.known[rows] == 0]
        missing = missing[np.argsort(self.features.lengths[missing], kind="stable")]
        for some in np.array_split(missing, math.ceil(len(missing) / batch)) if len(missing) else ():
            hidden = self.prefix.hidden(self.features.batch(some)).numpy()
            for row, states in zip(some, hidden, strict=True):
                first, last = self.offsets[row], self.offsets[row + 1]
                self.values[first:last] = states[: last - first]
            self.known[some] = 1

    def read(self, examples: Examples, places: np.ndarray) -> dict[str, Tensor]:
        """A batch whose embeddings are the states; other columns as they are."""
        rows = examples.rows[places]
        batch = examples.batch(places)
        mask = batch["attention_mask"]
        states = torch.zeros(*mask.shape, self.values.shape[1])
        for i, row in enumerate(rows):
            first, last = self.offsets[row], self.offsets[row + 1]
            states[i, : last - first] = torch.from_numpy(self.values[first:last])
        own = {n: t for n, t in batch.items() if n not in ("input_ids", "token_type_ids")}
        return {**own, "inputs_embeds": states}


def _put(module: nn.Module, path: str, value: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(module.get_submodule(parent), name, value)
