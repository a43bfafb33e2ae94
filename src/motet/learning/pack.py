"""A model made ready to train: its parameters as windows on one vector a client, its gradients as windows on another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from motet.core.params import Params
from motet.learning.model import Model, inputs_of, over_same_tensors
from motet.learning.objectives import Batch

WORTH_IT = 1000  # words; a smaller table is not worth taking rows out of


class _Words(nn.Embedding):
    """A word embedding that holds only some of its rows; `places` says where each word's row is."""

    places: Tensor | None

    def forward(self, ids: Tensor) -> Tensor:
        if self.places is None:
            return super().forward(ids)
        pad = self.padding_idx
        where = None if pad is None else int(self.pad_place)
        return F.embedding(self.places[ids], self.weight, where)

    def hold(self, rows: Tensor | None) -> None:
        self.places = None
        if rows is not None:
            unknown = -1  # a word that was not announced is an error, not a wrong row
            self.places = torch.full((self.num_embeddings,), unknown, dtype=torch.int64, device=rows.device)
            self.places[rows] = torch.arange(len(rows), device=rows.device)
            self.pad_place = 0 if self.padding_idx is None else int(self.places[self.padding_idx])


class Pack:
    """Row i of `flat` is client i's vector, row i of `grad` its gradient.

    So clipping, proximal terms and optimisers are operations on whole vectors, however many tensors the model has. The word
    embeddings come last in the vector. A client that trains on few words moves only their rows (SGD, and Adam from moments of
    zero, do nothing to the others), so only those rows are taken: the table is most of a small model.
    """

    def __init__(self, model: Model, module: nn.Module, device: torch.device) -> None:
        """`module` is the model's own, or the upper part of it when its frozen prefix has been cut off."""
        self.model, self.device = model, device
        self.whole = module is model.module
        self.flat = torch.zeros(1, model.layout.size, device=device)
        self.grad = torch.zeros_like(self.flat)
        self.decayed: dict[object, Tensor] = {}  # where weight decay acts, by objective
        by_tensor = {id(p): name for name, p in model.trainable.items()}
        self.module = over_same_tensors(module)
        if device.type != "cpu":
            self.module.to(device)  # before the windows are set, so that only frozen tensors move
        self.table, self.words = self._words(by_tensor)
        self.leaves = {name: nn.Parameter(torch.empty(0, device=device)) for name in model.layout.names}
        for part, original in zip(self.module.modules(), module.modules(), strict=True):
            for name, parameter in list(original._parameters.items()):
                if parameter is not None and id(parameter) in by_tensor:
                    part._parameters[name] = self.leaves[by_tensor[id(parameter)]]
        bound = {id(p) for p in self.module.parameters()}
        if loose := [name for name, leaf in self.leaves.items() if id(leaf) not in bound]:
            raise RuntimeError(f"the module does not hold the model's {', '.join(loose[:3])}, so it would not be trained")
        self.rows: Tensor | None = None
        self._set_windows()

    def _words(self, by_tensor: Mapping[int, str]) -> tuple[str, _Words | None]:
        """The trained table of word embeddings, if it is a plain one that nothing else uses.

        An output layer may be tied to it, and a decoder may look up other words in it than the encoder does.
        """
        find = getattr(self.module, "get_input_embeddings", None)
        sided = getattr(getattr(self.module, "config", None), "is_encoder_decoder", False)
        table = find() if find is not None and self.whole and not sided else None
        if type(table) is not nn.Embedding or table.num_embeddings < WORTH_IT or id(table.weight) not in by_tensor:
            return "", None
        if sum(p is table.weight for part in self.module.modules() for p in part._parameters.values()) > 1:
            return "", None
        name = by_tensor[id(table.weight)]
        words: Any = table
        words.__class__ = _Words
        words.hold(None)
        return name, words

    @property
    def size(self) -> int:
        """How many numbers are trained."""
        taken = self.model.layout.size
        if self.words is not None and self.rows is not None:
            taken -= (self.words.num_embeddings - len(self.rows)) * self.words.embedding_dim
        return taken

    def windows(self, vector: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Each tensor as a window on `flat` or `grad`."""
        at = 0
        for name, shape in sorted(zip(self.model.layout.names, self.model.layout.shapes, strict=True), key=self._last):
            if name == self.table and self.rows is not None:
                shape = (len(self.rows), *shape[1:])  # noqa: PLW2901
            size = int(np.prod(shape))
            yield name, vector[at : at + size].view(shape)
            at += size

    def _last(self, entry: tuple[str, tuple[int, ...]]) -> bool:
        return entry[0] == self.table

    def _set_windows(self) -> None:
        for (name, value), (_, gradient) in zip(self.windows(self.flat[0]), self.windows(self.grad[0]), strict=True):
            leaf = self.leaves[name]
            leaf.grad = None
            leaf.data = value
            leaf.grad = gradient

    def load(self, params: Params, rows: Tensor | None = None) -> None:
        """Take these parameters; of the word embeddings only these rows, if any are given and the model has such a table."""
        if self.words is not None and (rows is not None or self.rows is not None):
            self.rows = rows
            self.words.hold(rows)
            self._set_windows()
        with torch.no_grad():
            self.taken(params, self.flat[0])

    def taken(self, params: Params, out: Tensor | None = None) -> Tensor:
        """A vector in the order of `flat`."""
        vector = torch.empty(self.size, device=self.device) if out is None else out[: self.size]
        full = params.flat.to(self.device)
        if self.words is None:
            vector.copy_(full)
            return vector
        span = params.layout.spans[self.table]
        body = params.layout.size - (span.stop - span.start)
        vector[: span.start] = full[: span.start]
        vector[span.start : body] = full[span.stop :]
        table = full[span].view(self.words.num_embeddings, -1)
        vector[body:].view(-1, table.shape[1]).copy_(table if self.rows is None else table[self.rows])
        return vector

    def given(self, start: Params, vector: Tensor | None = None) -> Params:
        """`flat` (or another vector in its order) as parameters; rows that were not taken are those of `start`."""
        vector = self.flat[0, : self.size] if vector is None else vector
        if self.words is None:
            return Params(start.layout, vector.to("cpu", copy=True))
        span = start.layout.spans[self.table]
        body = start.layout.size - (span.stop - span.start)
        full = start.flat.clone() if self.rows is not None else torch.empty_like(start.flat)
        vector = vector.cpu()
        full[: span.start] = vector[: span.start]
        full[span.stop :] = vector[span.start : body]
        table = full[span].view(self.words.num_embeddings, -1)
        if self.rows is None:
            table.copy_(vector[body:].view_as(table))
        else:
            table[self.rows.cpu()] = vector[body:].view(len(self.rows), -1)
        return Params(start.layout, full)

    def train(self) -> None:
        """Training mode, except for what is frozen below everything trained: its output must not change from step to step."""
        self.module.train()
        frozen = self.model.frozen_layers if self.whole else 0
        if frozen:
            self.module.get_submodule(self.model.stem).eval()
            stack = self.module.get_submodule(self.model.stack)
            for layer in list(stack.children())[:frozen]:
                layer.eval()

    def __call__(self, batch: Batch) -> Mapping[str, Tensor]:
        output: Mapping[str, Tensor] = self.module(**inputs_of(batch))
        return output
