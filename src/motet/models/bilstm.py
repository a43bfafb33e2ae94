"""FedNLP's second kind of model: a bidirectional LSTM over word embeddings, read at each text's true ends."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from motet.models.anatomy import Anatomy


class BiLSTM(nn.Module):
    def __init__(self, vocabulary: int, labels: int, pad: int, width: int = 64, hidden: int = 64, dropout: float = 0.1) -> None:
        super().__init__()
        self.settings = {"vocabulary": vocabulary, "labels": labels, "pad": pad, "width": width, "hidden": hidden}
        self.embeddings = nn.Embedding(vocabulary, width, padding_idx=pad)
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(2 * hidden, labels)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Tensor) -> dict[str, Tensor]:
        words = self.dropout(self.embeddings(input_ids))
        lengths = attention_mask.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        _, (last, _) = self.lstm(packed)  # the state after the last real word, each way
        return {"logits": self.head(self.dropout(torch.cat([last[0], last[1]], 1)))}

    def anatomy(self) -> Anatomy:
        places = {"embeddings": "embeddings", "lstm": "layers.0", "head": "head"}
        return Anatomy({n: places[n.partition(".")[0]] for n, _ in self.named_parameters()}, "", "")
