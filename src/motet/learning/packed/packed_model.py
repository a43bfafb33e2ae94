"""A model made ready to train for one client or many: parameters as windows on one vector a client, gradients likewise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from motet.core.params import Params
from motet.learning.modules.model import Model, copy_sharing_parameters, select_model_inputs
from motet.learning.objectives.supervised import Batch
from motet.learning.packed.attention_workarounds import masked_attention
from motet.learning.packed.packed_layers import ClientAxis, in_products_only, install_packed_layers
from motet.learning.packed.sparse_embedding import install_sparse_embedding

# plain: one client, the model as it is. twins: leaf layers become batched kernels. vmap: the whole forward is vectorised,
# for models that hold parameters outside leaf layers.
Way = Literal["plain", "twins", "vmap"]
_ALIGN = 64  # numbers; products of rows that begin elsewhere take kernels of half the speed
_ROUND = 512  # words; tables of a pack are as long as its longest, rounded up so that shapes recur


class PackedModel:
    """Row i of `flat` is client i's vector, row i of `grad` its gradient.

    So clipping, proximal terms and optimisers are operations on whole vectors, however many tensors the model has, and
    clients that have finished leave by slicing. The word embeddings come last in the vector. A client that trains on few
    words moves only their rows (SGD, and Adam from moments of zero, do nothing to the others), so only those rows are taken:
    the table is most of a small model.
    """

    def __init__(
        self, model: Model, module: nn.Module, device: torch.device, way: Way = "plain", half: bool = False
    ) -> None:
        """`module` is the model's own, or the upper part of it when its frozen prefix has been cut off.

        `half`: products are computed in half precision, from weights that are rounded once a step.
        """
        self.model, self.device, self.way = model, device, way
        self.whole = module is model.module
        self.crowd = ClientAxis()
        self.buffers: dict[str, Tensor] = {}
        self.kept: dict[object, Any] = {}  # what others derive from this pack and want to find again: masks, optimisers
        self.generation = 0  # rises when vectors move in memory
        by_tensor = {id(p): name for name, p in model.trainable.items()}
        self.module = copy_sharing_parameters(module)
        config: Any = getattr(self.module, "config", None)
        if way != "plain" and config is not None:
            config.use_cache = False  # caches are for generation; they cost memory and do not pass through vmap
        self.module.to(device)
        self.leaves = {name: nn.Parameter(torch.empty(0, device=device)) for name in model.layout.names}
        self.words = (
            install_sparse_embedding(self.module, self.crowd, by_tensor) if self.whole and way != "vmap" else None
        )
        self.table = "" if self.words is None else by_tensor[id(self.words.weight)]
        self._adopt(module, by_tensor)
        rounded = in_products_only(self.module) if half and way == "twins" else set()
        self.halved = {name for name, leaf in self.leaves.items() if id(leaf) in rounded}
        self.counts: list[int] = []  # of words taken, by client; none: the whole table
        self.rows: Tensor | None = None
        self.clients = 1
        self._room(1)

    def _adopt(self, original: nn.Module, by_tensor: Mapping[int, str]) -> None:
        if self.way == "twins":
            install_packed_layers(
                self.module, self.crowd, {mark: self.leaves[name] for mark, name in by_tensor.items()}
            )
        elif self.way == "plain":
            for part, before in zip(self.module.modules(), original.modules(), strict=True):
                for name, parameter in list(before._parameters.items()):
                    if parameter is not None and id(parameter) in by_tensor:
                        part._parameters[name] = self.leaves[by_tensor[id(parameter)]]
        bound = {id(p) for p in self.module.parameters()}
        if self.way != "vmap" and (loose := [name for name, leaf in self.leaves.items() if id(leaf) not in bound]):
            raise RuntimeError(
                f"the module does not hold the model's {', '.join(loose[:3])}, so it would not be trained"
            )

    # ---- vectors ------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How long a client's vector is: in a pack a few zeros longer, so that every client's begins at a good place."""
        return self.used if self.way == "plain" else -(-self.used // _ALIGN) * _ALIGN

    @property
    def used(self) -> int:
        """How many numbers a client trains."""
        taken = self.model.layout.size
        if self.words is not None and self.rows is not None:
            taken -= (self.words.num_embeddings - self.rows.shape[1]) * self.words.embedding_dim
        return taken

    def vectors(self, name: str, dtype: torch.dtype = torch.float32) -> Tensor:
        """A matrix of this name, [clients, size]: one of the pack's own, kept from fit to fit."""
        wanted = self.clients * self.size
        if name not in self.buffers or self.buffers[name].numel() < wanted:
            self.buffers[name] = torch.zeros(wanted, dtype=dtype, device=self.device)
            self.generation += 1
        return self.buffers[name][:wanted].view(self.clients, self.size)

    def keep(self, name: str, values: Tensor) -> Tensor:
        """Values in the buffer of this name and shape; its first axis may be longer than they are."""
        shape, long = values.shape[1:], len(values)
        mark = ("kept", name, tuple(shape), values.dtype)
        kept: Tensor | None = self.kept.get(mark)
        if kept is None or len(kept) < long:
            length = 1 << (long - 1).bit_length() if long else 1
            self.kept[mark] = kept = torch.zeros((length, *shape), dtype=values.dtype, device=self.device)
            self.generation += 1
        kept[:long].copy_(values, non_blocking=True)
        return kept

    def keep_joined(self, name: str, tables: Sequence[Tensor]) -> Tensor:
        """Tables one after another in one buffer, whatever their shape is this time: they may be large.

        Like the buffer, what is given back is longer than they are: a recorded step checks against the length it has seen.
        """
        shape, mark = tables[0].shape[1:], ("joined", name, tables[0].dtype)
        each = max(1, int(np.prod(shape)))
        size = each * sum(len(table) for table in tables)
        kept: Tensor | None = self.kept.get(mark)
        if kept is None or len(kept) < size:  # an eighth more than now: what next time brings is seldom much larger
            self.kept[mark] = kept = torch.zeros(size + size // 8 + each, dtype=tables[0].dtype, device=self.device)
            self.generation += 1
        at, found = 0, kept[: len(kept) // each * each].view(-1, *shape)
        for table in tables:
            found[at : at + len(table)].copy_(table, non_blocking=True)
            at += len(table)
        return found

    @property
    def flat(self) -> Tensor:
        return self.vectors("flat")

    @property
    def grad(self) -> Tensor:
        return self.vectors("grad")

    def windows(self, matrix: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Each tensor as a window on a matrix in the order of `flat`: [clients, …]."""
        at = 0
        for name, shape in sorted(zip(self.model.layout.names, self.model.layout.shapes, strict=True), key=self._last):
            if name == self.table and self.rows is not None:
                shape = (self.rows.shape[1], *shape[1:])  # noqa: PLW2901
            size = int(np.prod(shape))
            yield name, matrix[:, at : at + size].view(len(matrix), *shape)
            at += size

    def _last(self, entry: tuple[str, tuple[int, ...]]) -> bool:
        return entry[0] == self.table

    def _room(self, clients: int) -> None:
        self.clients = clients
        self.narrow(clients)

    def narrow(self, clients: int) -> None:
        """Go on with the first clients only."""
        self.crowd.clients = clients
        halved = dict(self.windows(self.vectors("half", torch.bfloat16)[:clients])) if self.halved else {}
        for name, value in self.windows(self.flat[:clients]):
            leaf = self.leaves[name]
            leaf.grad = None
            value = halved[name] if name in self.halved else value  # noqa: PLW2901
            leaf.data = value[0] if self.way == "plain" else value

    def refresh(self) -> None:
        """Forget gradients; on a device that computes products in half precision, round all weights for them at once."""
        for leaf in self.leaves.values():
            leaf.grad = None
        if self.halved:
            self.vectors("half", torch.bfloat16)[: self.crowd.clients].copy_(self.flat[: self.crowd.clients])

    def collect(self) -> None:
        """What backward left at the leaves, as rows of `grad`. Neighbours of one type are brought together at once."""
        k = self.crowd.clients
        run: list[Tensor] = []
        start = at = 0

        def brought() -> None:
            if run:
                into = self.grad[:k, start:at]
                into.copy_(torch.cat(run, 1) if len(run) > 1 else run[0])

        for name, window in self.windows(self.grad[:k]):
            gradient, size = self.leaves[name].grad, window[0].numel()
            if gradient is None:
                brought()
                run, start = [], at + size
                window.zero_()
            else:
                if run and run[0].dtype != gradient.dtype:
                    brought()
                    run, start = [], at
                run.append(gradient.reshape(k, -1))
            at += size
        brought()

    # ---- parameters in and out ----------------------------------------------------------------------------------

    def seat(self, starts: Sequence[Params], words: Sequence[np.ndarray] | None = None) -> None:
        """Take these clients' parameters; of the word embeddings only these rows, if the model has such a table."""
        self.rows, self.counts = None, []
        if self.words is not None:
            if words is not None:
                self.counts = [len(w) for w in words]
                longest = max(self.counts)
                width = longest if self.way == "plain" else -(-longest // _ROUND) * _ROUND
                if width < self.words.num_embeddings:
                    filled = np.stack([np.pad(w, (0, width - len(w)), mode="edge") for w in words])
                    self.rows = torch.from_numpy(filled).to(self.device)
            self.generation += self.words.hold(self.rows, self.counts)
        self._room(len(starts))
        with torch.no_grad():
            self.taken(starts, self.flat)

    def taken(self, many: Sequence[Params], out: Tensor) -> Tensor:
        """Vectors in the order of `flat`. What is the same for all is brought once."""
        out[:, self.used :].zero_()
        if all(p is many[0] for p in many):
            self._fill(out, many[0].flat.to(self.device).unsqueeze(0), slice(None))
        else:
            for i, params in enumerate(many):
                self._fill(out[i : i + 1], params.flat.to(self.device).unsqueeze(0), slice(i, i + 1))
        return out

    def _fill(self, out: Tensor, full: Tensor, clients: slice) -> None:
        if self.words is None:
            out[:, : full.shape[1]] = full
            return
        span, body = self._spans()
        out[:, : span.start] = full[:, : span.start]
        out[:, span.start : body] = full[:, span.stop :]
        table = full[0, span].view(self.words.num_embeddings, -1)
        rows = table.unsqueeze(0) if self.rows is None else table[self.rows[clients]]
        out[:, body : body + rows[0].numel()] = rows.flatten(1)

    def _spans(self) -> tuple[slice, int]:
        span = self.model.layout.slices[self.table]
        return span, self.model.layout.size - (span.stop - span.start)

    def given(self, i: int, start: Params, vectors: Tensor | None = None) -> Params:
        """Client i's row of `flat` (or of others in its order) as parameters, where `start` lives.

        Rows of the table that were not taken are those of `start`.
        """
        vector = (self.flat if vectors is None else vectors)[i]
        home = start.flat.device
        if self.words is None:
            return Params(start.layout, vector[: start.layout.size].to(home, copy=True))
        span, body = self._spans()
        full = start.flat.clone() if self.rows is not None else torch.empty_like(start.flat)
        vector = vector.to(home)
        full[: span.start] = vector[: span.start]
        full[span.stop :] = vector[span.start : body]
        table = full[span].view(self.words.num_embeddings, -1)
        if self.rows is None:
            table.copy_(vector[body : body + table.numel()].view_as(table))
        else:
            real = self.counts[i]
            table[self.rows[i, :real].to(home)] = vector[body : body + real * table.shape[1]].view(real, -1)
        return Params(start.layout, full)

    # ---- the model ----------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Training mode, except for what is frozen below everything trained: its output must not change from step to step."""
        self.module.train()
        frozen = self.model.num_frozen_layers if self.whole else 0
        if frozen:
            self.module.get_submodule(self.model.embeddings_path).eval()
            stack = self.module.get_submodule(self.model.layers_path)
            for layer in list(stack.children())[:frozen]:
                layer.eval()

    def __call__(self, batch: Batch) -> Mapping[str, Tensor]:
        """[clients·rows, …] in, [clients·rows, …] out."""
        inputs = select_model_inputs(batch)
        with self._side_by_side(next(iter(inputs.values()))):
            if self.way != "vmap":
                output: Mapping[str, Tensor] = self.module(**inputs)
                return output
            split = {k: v.view(self.crowd.clients, -1, *v.shape[1:]) for k, v in inputs.items()}
            each = torch.vmap(self._one, randomness="different")(dict(self.leaves), split)
            return {k: v.flatten(0, 1) for k, v in each.items()}

    def call_method(self, name: str, *given: Tensor) -> Tensor:
        """A method of the module instead of its forward. All that is given has as many rows as the first."""
        if self.way == "vmap":
            raise RuntimeError(f"{name}: only a whole forward pass is vectorised")
        with self._side_by_side(given[0]):
            return torch.as_tensor(getattr(self.module, name)(*given))

    @contextmanager
    def _side_by_side(self, first: Tensor) -> Iterator[None]:
        """While it runs, the module's leaves know how many rows each client brings."""
        self.crowd.rows = len(first) // self.crowd.clients
        try:
            with nullcontext() if self.device.type == "cpu" and self.way == "plain" else masked_attention():
                yield
        finally:
            self.crowd.last_rounded = None  # else it would hold on to the gradients' graph of this pass

    def _one(self, own: Mapping[str, Tensor], inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        output = functional_call(self.module, dict(own), kwargs=inputs)
        return {k: output[k] for k in ("logits", "start_logits", "end_logits") if k in output}
