"""A word-embedding table that holds only the rows that a client's texts need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from motet.learning.packed.client_embedding import embed, embed_per_client
from motet.learning.packed.host_copy import upload
from motet.learning.packed.packed_layers import ClientAxis

_MISSING = 2**40  # out of range, so that an unexpected token id raises an error instead of reading a wrong row
MIN_VOCABULARY = 1000  # words; for smaller tables it does not pay to select rows


class SparseEmbedding(nn.Embedding):
    """An embedding with a weight that may hold selected rows only, with or without a leading client axis.

    `row_index` [clients, vocabulary] maps token ids to rows of the weight, or is None if the weight holds all rows.
    `index_buffer` is its storage. It is kept while all rows are held, because captured CUDA graphs read it.
    """

    client_axis: ClientAxis
    index_buffer: Tensor | None
    row_index: Tensor | None
    padding_row: int | None

    def forward(self, ids: Tensor) -> Tensor:
        if self.weight.dim() == 2:
            if self.row_index is None:
                return embed(self.weight, ids, self.padding_idx)
            return embed(self.weight, self.row_index[0][ids], self.padding_row)
        ids = self.client_axis.split(ids, "Embedding")
        is_padding = None if self.padding_idx is None else ids == self.padding_idx
        if self.row_index is not None:
            ids = self.row_index[: len(ids)].gather(1, ids.flatten(1)).view_as(ids)
        target = self.client_axis.grad_targets.get(id(self.weight))
        return self.client_axis.merge(embed_per_client(self.weight, ids, is_padding, target))

    def select_rows(self, token_ids: Tensor | None, counts: Sequence[int]) -> bool:
        """Map token ids [clients, rows] to rows 0, 1, ...; client i uses its first `counts[i]`. None: all rows are held.

        Returns True if CUDA graphs that were captured before are no longer valid.
        """
        if token_ids is None:
            self.row_index = None
            return False
        index, old_padding_row = self.index_buffer, self.padding_row
        if index is None or len(index) < len(token_ids):
            index = torch.empty((len(token_ids), self.num_embeddings), dtype=torch.int64, device=token_ids.device)
        moved = index is not self.index_buffer
        self.index_buffer = self.row_index = index
        index.fill_(_MISSING)
        last_rows = upload(torch.tensor(counts), token_ids.device).unsqueeze(1) - 1
        rows = torch.arange(token_ids.shape[1], device=token_ids.device).minimum(last_rows)  # padding repeats the last
        index[: len(token_ids)].scatter_(1, token_ids, rows)
        if len(token_ids) == 1 and self.padding_idx is not None:
            row = int(index[0, self.padding_idx])
            self.padding_row = None if row == _MISSING else row
        return moved or self.padding_row != old_padding_row


def install_sparse_embedding(
    module: nn.Module, client_axis: ClientAxis, trained: Mapping[int, str]
) -> SparseEmbedding | None:
    """Turn the module's word embedding into a `SparseEmbedding`, if that is possible and pays.

    Not if an output layer is tied to it, or if a decoder may look up other words than the encoder.
    """
    get_embedding = getattr(module, "get_input_embeddings", None)
    is_encoder_decoder = getattr(getattr(module, "config", None), "is_encoder_decoder", False)
    table = get_embedding() if get_embedding is not None and not is_encoder_decoder else None
    if type(table) is not nn.Embedding or table.num_embeddings < MIN_VOCABULARY or id(table.weight) not in trained:
        return None
    if sum(p is table.weight for submodule in module.modules() for p in submodule._parameters.values()) > 1:
        return None
    embedding: Any = table
    embedding.__class__ = SparseEmbedding
    embedding.client_axis = client_axis
    embedding.index_buffer, embedding.row_index, embedding.padding_row = None, None, None
    return table  # type: ignore[return-value]
