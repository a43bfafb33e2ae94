"""A model prepared to train one client or many.

Each client's parameters, and gradients, are one vector with views into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from motet.core.layers import Layers
from motet.core.params import Params
from motet.learning.modules.model import Model, copy_sharing_parameters, select_model_inputs
from motet.learning.objectives.supervised import Batch
from motet.learning.packed.attention_workarounds import disable_caches, masked_attention, unmasked_attention
from motet.learning.packed.cpu_attention import install_fast_dropout
from motet.learning.packed.cuda_graphs import drops_layers
from motet.learning.packed.fused_blocks import find_fused_rotary, install_fused_blocks, rotary_replaced_by
from motet.learning.packed.grad_targets import GradTarget, LeafViews, ViewCache, collect_leaf_grads, write_remaining
from motet.learning.packed.host_copy import upload
from motet.learning.packed.kernel_modules import kernels_for
from motet.learning.packed.packed_blocks import install_packed_blocks
from motet.learning.packed.packed_layers import ClientAxis, install_packed_layers, params_used_only_in_products
from motet.learning.packed.packed_lora import install_packed_lora
from motet.learning.packed.packed_optimizer import PackedVectors
from motet.learning.packed.packed_projections import joint_order
from motet.learning.packed.plain_layers import install_plain_layers
from motet.learning.packed.short_attention import short_attention
from motet.learning.packed.sparse_embedding import install_sparse_embedding
from motet.learning.packed.step_buffers import StepBuffers

# plain: one client, the model unchanged. packed_layers: leaf layers become batched kernels. vmap: the whole forward
# pass is vectorized, for models with parameters outside of leaf layers.
PackingMode = Literal["plain", "packed_layers", "vmap"]
_ALIGNMENT = 64  # elements; matrix products on rows that start elsewhere use kernels of half the speed
_EMBEDDING_ROWS_STEP = 512  # the number of embedding rows is rounded up to a multiple, so that shapes recur


class PackedModel:
    """Row i of `params` is client i's parameter vector, and row i of `grads` its gradient.

    Clipping, proximal terms and optimizers work on whole vectors, whatever tensors the model has, and clients that have
    finished leave by slicing.

    The word embeddings come last in the vector. A client that trains on few words changes only their rows: SGD, and
    Adam with a fresh state, do nothing to the others. So only those rows are loaded; the table is most of a small
    model.
    """

    def __init__(
        self,
        model: Model,
        module: nn.Module,
        device: torch.device,
        packing_mode: PackingMode = "plain",
        use_bf16: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`module` is the model's own, or its upper part if the frozen prefix was cut off.

        With `use_bf16`, matrix products run in bfloat16 on weights that are cast once per step, and a plain model on a
        CPU has its own attention and dropout. `dtype` is that of the clients' vectors; float64 is for comparisons.
        """
        self.model, self.device, self.packing_mode = model, device, packing_mode
        self.is_full_model = module is model.module
        self.client_axis = ClientAxis()
        self.buffers = StepBuffers(device, dtype)
        names_by_id = {id(p): name for name, p in model.trainable.items()}
        self.module = copy_sharing_parameters(module)
        self.module.to(device)
        self.uses_fused_blocks = device.type == "cuda" and packing_mode != "vmap" and dtype == torch.float32
        is_plain_bf16 = use_bf16 and device.type == "cpu" and packing_mode == "plain"
        self.uses_short_attention = self.uses_fused_blocks or is_plain_bf16
        self._install_blocks()
        self.rotary = find_fused_rotary(self.module, device) if self.uses_fused_blocks else None
        self.can_be_captured = packing_mode != "vmap" and not drops_layers(self.module)
        self.leaves = {name: nn.Parameter(torch.empty(0, device=device)) for name in model.layout.names}
        can_be_sparse = self.is_full_model and packing_mode != "vmap"
        self.embedding = install_sparse_embedding(self.module, self.client_axis, names_by_id) if can_be_sparse else None
        self.embedding_name = "" if self.embedding is None else names_by_id[id(self.embedding.weight)]
        self._install_leaves(module, names_by_id)
        cast = params_used_only_in_products(self.module) if use_bf16 and packing_mode == "packed_layers" else set()
        self.bf16_names = {name for name, leaf in self.leaves.items() if id(leaf) in cast}
        names_by_leaf = {id(leaf): name for name, leaf in self.leaves.items()}
        self.joint_order = joint_order(model.layout.names, self.module, names_by_leaf, self.bf16_names)
        self.embedding_rows: Tensor | None = None  # loaded rows, as token ids [clients, rows]; None: all
        self.embedding_row_counts: list[int] = []  # per client; the rest of `embedding_rows` is padding
        self.writes_grads, self.is_set_to_train, self.views = False, False, ViewCache()
        self._set_clients(1)

    def _install_blocks(self) -> None:
        if self.packing_mode != "plain":
            disable_caches(self.module)
        if self.uses_fused_blocks:
            install_fused_blocks(self.module)
        elif self.uses_short_attention:
            install_fast_dropout(self.module)
        if self.packing_mode == "packed_layers":
            install_packed_blocks(self.module)

    def _install_leaves(self, original: nn.Module, names_by_id: Mapping[int, str]) -> None:
        leaves = {key: self.leaves[name] for key, name in names_by_id.items()}
        if self.packing_mode == "packed_layers":
            install_packed_layers(self.module, self.client_axis, leaves)
            install_packed_lora(self.module, self.client_axis)
        elif self.packing_mode == "plain":
            install_plain_layers(self.module, original, leaves)
        bound = {id(p) for p in self.module.parameters()}
        unbound = [name for name, leaf in self.leaves.items() if id(leaf) not in bound]
        if self.packing_mode != "vmap" and unbound:
            raise RuntimeError(
                f"the module does not contain the model's {', '.join(unbound[:3])}, so it would not be trained"
            )

    # ---- vectors ------------------------------------------------------------------------------------------------

    @property
    def num_trained(self) -> int:
        """The number of parameters that a client trains."""
        size = self.model.layout.size
        if self.embedding is not None and self.embedding_rows is not None:
            size -= (self.embedding.num_embeddings - self.embedding_rows.shape[1]) * self.embedding.embedding_dim
        return size

    @property
    def size(self) -> int:
        """The length of a client's vector. In a packed model it is zero-padded, so that every vector is aligned."""
        return self.num_trained if self.packing_mode == "plain" else -(-self.num_trained // _ALIGNMENT) * _ALIGNMENT

    @property
    def params(self) -> Tensor:
        return self.buffers.params.view(self.clients, self.size)

    @property
    def grads(self) -> Tensor:
        return self.buffers.grads.view(self.clients, self.size)

    def tensor_views(self, vectors: Tensor, joint: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Yield each tensor as a view [clients, ...] of vectors in the order of `params`, or in that for joint products."""
        start, layout = 0, self.model.layout
        shapes = dict(zip(layout.names, layout.shapes, strict=True))
        for name in sorted(self.joint_order if joint else layout.names, key=self._is_embedding):
            shape = shapes[name]
            if name == self.embedding_name and self.embedding_rows is not None:
                shape = (self.embedding_rows.shape[1], *shape[1:])
            size = int(np.prod(shape))
            yield name, vectors[:, start : start + size].view(len(vectors), *shape)
            start += size

    def _is_embedding(self, name: str) -> bool:
        return name == self.embedding_name

    def _set_clients(self, clients: int) -> None:
        self.clients = clients
        self.keep_first(clients)

    def keep_first(self, clients: int) -> None:
        """Continue with the first clients only."""
        self.client_axis.clients = clients
        views = self._leaf_views("params", self.params, self._bf16_params() if self.bf16_names else None)
        for leaf, view in views:
            leaf.grad = None
            leaf.data = view[0] if self.packing_mode == "plain" else view
        self._set_grad_targets()

    def _leaf_views(self, name: str, vectors: Tensor, bf16_vectors: Tensor | None) -> LeafViews:
        """Return every leaf with its view of these vectors, or of the bfloat16 ones if its products use them."""
        clients = self.client_axis.clients

        def make() -> LeafViews:
            bf16 = {} if bf16_vectors is None else dict(self.tensor_views(bf16_vectors[:clients], self.writes_grads))
            views = self.tensor_views(vectors[:clients])
            return [(self.leaves[n], bf16[n] if n in self.bf16_names else view) for n, view in views]

        key = (name, self.clients, clients, self.size, self.num_trained, self.writes_grads)
        return self.views.get(self.buffers.generation, key, make)

    def _bf16_params(self) -> Tensor:
        return self.buffers.bf16_params.view(self.clients, self.size)

    @property
    def optimizer_kernels(self) -> ModuleType | None:
        """The kernels of a fused optimizer step, if this model can use them."""
        return kernels_for(self.params, "triton_optimizer") if self.packing_mode == "packed_layers" else None

    @property
    def bf16_grads(self) -> Tensor | None:
        """Row i is the gradient of client i's matrix products, if they run in bfloat16."""
        return self.buffers.bf16_grads.view(self.clients, self.size) if self.bf16_names else None

    def packed_vectors(self) -> PackedVectors:
        """Return the parameters and gradients in float32, and those of matrix products in bfloat16."""
        if not self.bf16_names:
            return PackedVectors(self.params, self.grads)
        places = torch.arange(self.size, dtype=torch.int32, device=self.device).unsqueeze(0)
        joint, positions = dict(self.tensor_views(places, joint=True)), torch.full_like(places, -1)
        for name, view in self.tensor_views(positions):
            if name in self.bf16_names:
                view.copy_(joint[name])
        return PackedVectors(self.params, self.grads, self._bf16_params(), self.bf16_grads, positions[0])

    def write_grads_directly(self, enabled: bool) -> None:
        """Let layers write their gradients to the clients' vectors, instead of `collect_grads`, and join their products."""
        self.writes_grads = enabled
        self.keep_first(self.client_axis.clients)
        for leaf in self.leaves.values() if enabled else ():
            if not leaf.requires_grad:  # its gradient is never written
                self.client_axis.grad_targets[id(leaf)].view.zero_()

    def _set_grad_targets(self) -> None:
        targets = self.client_axis.grad_targets
        targets.clear()
        if self.writes_grads:
            views = self._leaf_views("grads", self.grads, self.bf16_grads)
            targets |= {id(leaf): GradTarget(view) for leaf, view in views}

    def begin_step(self) -> None:
        """Reset gradients and, with bfloat16 products, cast all their weights at once."""
        self.drop_leaf_grads()
        if self.bf16_names:
            clients = self.client_axis.clients
            self._bf16_params()[:clients].copy_(self.params[:clients])

    def drop_leaf_grads(self) -> None:
        for leaf in self.leaves.values():
            leaf.grad = None
        for target in self.client_axis.grad_targets.values():
            target.is_written = False

    def collect_grads(self, add: bool = False) -> None:
        """Copy the leaves' gradients into `grads`, or add them."""
        if self.writes_grads:
            write_remaining(self.leaves.values(), self.client_axis.grad_targets)
            return
        grads = self.grads[: self.client_axis.clients]
        collect_leaf_grads(grads, [(self.leaves[name], view) for name, view in self.tensor_views(grads)], add)

    def train_only(self, layers: Layers | None) -> None:
        """Compute gradients only for these layers; None: for all. The gradients of the others are 0."""
        trained = self.model.layout if layers is None else self.model.layout.select_layers(layers)
        for name, leaf in self.leaves.items():
            leaf.requires_grad_(name in trained.slices)

    # ---- parameters in and out ----------------------------------------------------------------------------------

    def load_clients(self, params: Sequence[Params], token_ids: Sequence[np.ndarray] | None = None) -> None:
        """Load these clients' parameters; of the word embeddings only the rows of `token_ids`, if that is possible."""
        self.embedding_rows, self.embedding_row_counts, self.writes_grads = None, [], False
        if self.embedding is not None:
            if token_ids is not None:
                self._select_embedding_rows(token_ids, self.embedding.num_embeddings)
            if self.embedding.select_rows(self.embedding_rows, self.embedding_row_counts):
                self.buffers.invalidate_graphs()
        self._set_clients(len(params))
        with torch.no_grad():
            self.write_vectors(params, self.params)

    def _select_embedding_rows(self, token_ids: Sequence[np.ndarray], vocabulary: int) -> None:
        self.embedding_row_counts = [len(ids) for ids in token_ids]
        rows = max(self.embedding_row_counts)
        if self.packing_mode != "plain":
            rows = -(-rows // _EMBEDDING_ROWS_STEP) * _EMBEDDING_ROWS_STEP
        if rows < vocabulary:
            padded = np.empty((len(token_ids), rows), np.int64)
            for row, ids in zip(padded, token_ids, strict=True):
                row[: len(ids)], row[len(ids) :] = ids, ids[-1]
            self.embedding_rows = upload(torch.from_numpy(padded), self.device)

    def write_vectors(self, params: Sequence[Params], out: Tensor) -> Tensor:
        """Write parameters to `out`, in the order of `params`. If all are the same object, it is transferred once."""
        out[:, self.num_trained :].zero_()
        if all(p is params[0] for p in params):
            self._write(out, params[0].flat.to(self.device).unsqueeze(0), slice(None))
        else:
            for i, client_params in enumerate(params):
                self._write(out[i : i + 1], client_params.flat.to(self.device).unsqueeze(0), slice(i, i + 1))
        return out

    def _write(self, out: Tensor, full: Tensor, clients: slice) -> None:
        if self.embedding is None:
            out[:, : full.shape[1]] = full
            return
        span, body = self._embedding_span()
        out[:, : span.start] = full[:, : span.start]
        out[:, span.start : body] = full[:, span.stop :]
        table = full[0, span].view(self.embedding.num_embeddings, -1)
        rows = table.unsqueeze(0) if self.embedding_rows is None else table[self.embedding_rows[clients]]
        out[:, body : body + rows[0].numel()] = rows.flatten(1)

    def _embedding_span(self) -> tuple[slice, int]:
        """Return where the embeddings are in a `Params` vector, and where they start in ours (after everything else)."""
        span = self.model.layout.slices[self.embedding_name]
        return span, self.model.layout.size - (span.stop - span.start)

    def read_vector(self, i: int, start: Params, vectors: Tensor | None = None) -> Params:
        """Return client i's row of `params`, or of other vectors in its order, on the device of `start`.

        Embedding rows that were not loaded are taken from `start`.
        """
        vector = (self.params if vectors is None else vectors)[i]
        device = start.flat.device
        if self.embedding is None:
            return Params(start.layout, vector[: start.layout.size].to(device, copy=True))
        span, body = self._embedding_span()
        full = torch.empty_like(start.flat)
        if self.embedding_rows is not None:
            full[span] = start.flat[span]
        vector = vector.to(device)
        full[: span.start] = vector[: span.start]
        full[span.stop :] = vector[span.start : body]
        table = full[span].view(self.embedding.num_embeddings, -1)
        if self.embedding_rows is None:
            table.copy_(vector[body : body + table.numel()].view_as(table))
        else:
            count = self.embedding_row_counts[i]
            rows = vector[body : body + count * table.shape[1]].view(count, -1)
            table[self.embedding_rows[i, :count].to(device)] = rows
        return Params(start.layout, full)

    # ---- the model ----------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Switch to training mode, except for frozen layers at the bottom: their output must not vary between steps."""
        if self.is_set_to_train and self.module.training:  # all modules of a small BERT take 1 ms
            return
        self.is_set_to_train = True
        self.module.train()
        frozen = self.model.num_frozen_layers if self.is_full_model else 0
        if frozen:
            self.module.get_submodule(self.model.embeddings_path).eval()
            layers = self.module.get_submodule(self.model.layers_path)
            for layer in list(layers.children())[:frozen]:
                layer.eval()

    def __call__(self, batch: Batch) -> Mapping[str, Tensor]:
        """Run the forward pass. Inputs and outputs are [clients * rows, ...]."""
        inputs = select_model_inputs(batch)
        with self._packed_rows(next(iter(inputs.values()))):
            if self.packing_mode != "vmap":
                output: Mapping[str, Tensor] = self.module(**inputs)
                return output
            split = {name: x.view(self.client_axis.clients, -1, *x.shape[1:]) for name, x in inputs.items()}
            outputs = torch.vmap(self._forward_one, randomness="different")(dict(self.leaves), split)
            return {name: y.flatten(0, 1) for name, y in outputs.items()}

    def call_method(self, name: str, *inputs: Tensor) -> Tensor:
        """Call a method of the module instead of its forward pass. All inputs have as many rows as the first."""
        return self.apply(lambda module, *args: torch.as_tensor(getattr(module, name)(*args)), *inputs)

    def apply(self, function: Callable[..., Tensor], *inputs: Tensor, masked: bool = True) -> Tensor:
        """Call `function(module, *inputs)` instead of the forward pass. All inputs have as many rows as the first."""
        if self.packing_mode == "vmap":
            raise RuntimeError("vmap supports only whole forward passes")
        with self._packed_rows(inputs[0], masked):
            return function(self.module, *inputs)

    @contextmanager
    def _packed_rows(self, first_input: Tensor, masked: bool = True) -> Iterator[None]:
        """Tell the packed layers how many rows each client has in this forward pass."""
        self.client_axis.rows = len(first_input) // self.client_axis.clients
        is_plain = self.device.type == "cpu" and self.packing_mode == "plain"
        attention = masked_attention if masked else unmasked_attention
        try:
            with (
                rotary_replaced_by(self.rotary, self.module),
                short_attention() if self.uses_short_attention else nullcontext(),
                nullcontext() if is_plain else attention(),
            ):
                yield
        finally:
            # They would keep the autograd graph of this pass alive.
            self.client_axis.last_cast = self.client_axis.projections = None

    def _forward_one(self, leaves: Mapping[str, Tensor], inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        output = functional_call(self.module, dict(leaves), kwargs=inputs)
        return {name: output[name] for name in ("logits", "start_logits", "end_logits") if name in output}
