"""The frozen prefix of a model. If embeddings and lower layers are frozen, their output for a text never changes.

It is computed once per text, stored in a memory-mapped file that all workers share, and only the upper layers are run
in training.
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

TOLERANCE = 1e-4  # relative difference of the logits; float32 with other batch shapes gives 1e-6


class _StopForward(Exception):  # noqa: N818 - control flow: leaves a forward pass once the hidden states are known
    pass


class _PassEmbeddings(nn.Module):
    """Replaces the embeddings: returns the hidden states that were passed as `inputs_embeds`."""

    def forward(self, *args: Tensor | None, **options: Tensor | None) -> Tensor:
        floats = [t for t in (*args, *options.values()) if isinstance(t, Tensor) and t.is_floating_point()]
        return next(t for t in floats if t.dim() == 3)


class FrozenPrefix:
    """A model split into its frozen lower layers (`lower`) and the rest (`upper`)."""

    def __init__(self, model: Model) -> None:
        self.model, self.depth = model, model.num_frozen_layers
        self.lower = copy_sharing_parameters(model.module).eval()
        self.upper = copy_sharing_parameters(model.module)
        upper_layers = list(self.upper.get_submodule(model.layers_path).children())[self.depth :]
        _replace_submodule(self.upper, model.embeddings_path, _PassEmbeddings())
        _replace_submodule(self.upper, model.layers_path, nn.ModuleList(upper_layers))
        layers = list(self.lower.get_submodule(model.layers_path).children())
        if self.depth < len(layers):
            layers[self.depth].register_forward_pre_hook(self._stop_before, with_kwargs=True)
        else:
            layers[-1].register_forward_hook(self._stop_after)
        self._hidden: Tensor | None = None

    def _stop_before(self, _: nn.Module, args: tuple[Tensor, ...], options: dict[str, Tensor]) -> None:
        self._hidden = args[0] if args else options["hidden_states"]
        raise _StopForward

    def _stop_after(self, _: nn.Module, args: tuple[Tensor, ...], output: Tensor | tuple[Tensor, ...]) -> None:
        self._hidden = output if isinstance(output, Tensor) else output[0]
        raise _StopForward

    @torch.no_grad()
    def hidden_states(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the input of the first trained layer, [rows, tokens, width]."""
        with suppress(_StopForward):
            self.lower(**select_model_inputs(batch))
        if self._hidden is None:
            raise RuntimeError("the forward pass did not reach the first trained layer")
        hidden, self._hidden = self._hidden, None
        return hidden


def cut_frozen_prefix(model: Model, probe: Mapping[str, Tensor]) -> FrozenPrefix | None:
    """Split the model, or return None if it cannot be split.

    The decision compares outputs on a small batch, so that no list of model families is needed.
    """
    if not model.num_frozen_layers or not model.embeddings_path:
        return None
    try:
        prefix = FrozenPrefix(model)
        with torch.no_grad():
            expected = copy_sharing_parameters(model.module).eval()(**select_model_inputs(probe))["logits"]
            hidden = prefix.hidden_states(probe)
            logits = prefix.upper.eval()(inputs_embeds=hidden, attention_mask=probe["attention_mask"])["logits"]
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError, StopIteration):
        return None
    difference = float((expected - logits).norm() / (expected.norm() + 1e-9))
    return prefix if difference < TOLERANCE else None  # also None if the difference is NaN


class HiddenStateCache:
    """The prefix's output for every row of some features, computed when a row is first needed.

    Processes that are forked later share it through memory-mapped files.
    """

    def __init__(self, prefix: FrozenPrefix, features: Features, width: int, folder: Path) -> None:
        self.prefix, self.features = prefix, features
        self.offsets = np.zeros(len(features) + 1, np.int64)
        np.cumsum(features.lengths, out=self.offsets[1:])
        shape = (max(1, int(self.offsets[-1])), width)
        self.values = np.memmap(folder / f"{features.key}.hidden", np.float32, "w+", shape=shape)
        self.is_computed = np.memmap(
            folder / f"{features.key}.computed", np.uint8, "w+", shape=(max(1, len(features)),)
        )

    @staticmethod
    def num_bytes(features: Features, width: int) -> int:
        return int(features.lengths.sum()) * width * 4

    def fill(self, rows: np.ndarray, batch_size: int = 32) -> None:
        """Compute missing rows. Two workers may compute the same row; they write the same numbers."""
        missing = rows[self.is_computed[rows] == 0]
        missing = missing[np.argsort(self.features.lengths[missing], kind="stable")]
        for batch in np.array_split(missing, math.ceil(len(missing) / batch_size)) if len(missing) else ():
            hidden = self.prefix.hidden_states(self.features.batch(batch)).float().numpy()
            for row, states in zip(batch, hidden, strict=True):
                start, end = self.offsets[row], self.offsets[row + 1]
                self.values[start:end] = states[: end - start]
            self.is_computed[batch] = 1

    def batch(self, examples: Examples, indices: np.ndarray) -> dict[str, Tensor]:
        """Return a batch with the cached states as `inputs_embeds` instead of token ids."""
        batch = examples.batch(indices)
        mask = batch["attention_mask"]
        states = torch.zeros(*mask.shape, self.values.shape[1])
        for i, row in enumerate(examples.rows[indices]):
            start, end = self.offsets[row], self.offsets[row + 1]
            states[i, : end - start] = torch.from_numpy(self.values[start:end])
        columns = {name: t for name, t in batch.items() if name not in ("input_ids", "token_type_ids")}
        return {**columns, "inputs_embeds": states}


def _replace_submodule(module: nn.Module, path: str, replacement: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(module.get_submodule(parent), name, replacement)
