"""A table of word embeddings that holds only the rows a client's texts need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from motet.learning.packed.packed_layers import ClientAxis, read_tables

_NOWHERE = 2**40  # a word that was not announced is an error, not a wrong row
WORTH_IT = 1000  # words; a smaller table is not worth taking rows out of


class SparseEmbedding(nn.Embedding):
    """`places` says for each client where each word's row is. Also its own twin: the weight may have a leading axis."""

    crowd: ClientAxis
    table: Tensor | None  # where `places` lies while some rows are held; it stays, since recorded steps read it
    places: Tensor | None
    pad_place: int | None

    def forward(self, ids: Tensor) -> Tensor:
        if self.weight.dim() == 2:
            if self.places is None:
                return super().forward(ids)
            return F.embedding(self.places[0][ids], self.weight, self.pad_place)
        ids = self.crowd.split(ids, "Embedding")
        padding = None if self.padding_idx is None else ids == self.padding_idx
        if self.places is not None:
            ids = self.places[: len(ids)].gather(1, ids.flatten(1)).view_as(ids)
        return self.crowd.join(read_tables(self.weight, ids, padding))

    def hold(self, rows: Tensor | None, counts: Sequence[int]) -> bool:
        """Rows [clients, words], of which a client's first `counts` are its own. None: the whole table.

        Says whether what a recorded step has seen of it is no longer so.
        """
        if rows is None:
            self.places = None
            return False
        places, padded = self.table, self.pad_place
        if places is None or len(places) < len(rows):
            places = torch.empty((len(rows), self.num_embeddings), dtype=torch.int64, device=rows.device)
        moved, self.table, self.places = places is not self.table, places, places
        places.fill_(_NOWHERE)
        for i, count in enumerate(counts):
            places[i, rows[i, :count]] = torch.arange(count, device=rows.device)
        if len(rows) == 1 and self.padding_idx is not None:
            place = int(places[0, self.padding_idx])
            self.pad_place = None if place == _NOWHERE else place
        return moved or self.pad_place != padded


def install_sparse_embedding(
    module: nn.Module, crowd: ClientAxis, trained: Mapping[int, str]
) -> SparseEmbedding | None:
    """The module's trained table of word embeddings, made to hold some of its rows, if it is a plain one of its own.

    An output layer may be tied to it, and a decoder may look up other words in it than the encoder does.
    """
    find = getattr(module, "get_input_embeddings", None)
    sided = getattr(getattr(module, "config", None), "is_encoder_decoder", False)
    table = find() if find is not None and not sided else None
    if type(table) is not nn.Embedding or table.num_embeddings < WORTH_IT or id(table.weight) not in trained:
        return None
    if sum(p is table.weight for part in module.modules() for p in part._parameters.values()) > 1:
        return None
    words: Any = table
    words.__class__ = SparseEmbedding
    words.crowd, words.table, words.places, words.pad_place = crowd, None, None, None
    return table  # type: ignore[return-value]
