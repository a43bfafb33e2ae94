"""FedNLP's recurrent baseline: an LSTM over word embeddings."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from motet.models.parameter_roles import ParameterRoles

_SETTINGS = ("task", "vocab_size", "num_labels", "pad_token_id", "embedding_dim", "hidden_size")  # in config.json


class BiLSTM(nn.Module):
    """A bidirectional LSTM for classification, regression and tagging; for language modeling it reads forward only."""

    def __init__(
        self,
        task: str,
        vocab_size: int,
        num_labels: int,
        pad_token_id: int,
        embedding_dim: int = 64,
        hidden_size: int = 64,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.settings = {
            "task": task,
            "vocab_size": vocab_size,
            "num_labels": num_labels,
            "pad_token_id": pad_token_id,
            "embedding_dim": embedding_dim,
            "hidden_size": hidden_size,
        }
        self.task = task
        is_bidirectional = task != "lm"
        self.embeddings = nn.Embedding(vocab_size, embedding_dim, padding_idx=pad_token_id)
        self.lstm = nn.LSTM(embedding_dim, hidden_size, batch_first=True, bidirectional=is_bidirectional)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden_size * (1 + is_bidirectional), vocab_size if task == "lm" else num_labels)

    @staticmethod
    def load(folder: str | Path) -> BiLSTM:
        """Load an exported model. The folder also holds its tokenizer; `labels_named` in config.json are the labels."""
        from safetensors.torch import load_file

        config = json.loads((Path(folder) / "config.json").read_text("utf-8"))
        model = BiLSTM(**{name: config[name] for name in _SETTINGS})
        model.load_state_dict(load_file(str(Path(folder) / "model.safetensors")))
        return model.eval()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Tensor) -> dict[str, Tensor]:
        embeddings = self.dropout(self.embeddings(input_ids))
        lengths = attention_mask.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(embeddings, lengths, batch_first=True, enforce_sorted=False)
        packed_states, (final_states, _cells) = self.lstm(packed)
        if self.task in ("tagging", "lm"):
            states, _lengths = pad_packed_sequence(packed_states, batch_first=True, total_length=input_ids.shape[1])
            return {"logits": self.head(self.dropout(states))}
        # The final states of both directions, at the last and the first token; padding is not read.
        return {"logits": self.head(self.dropout(torch.cat([final_states[0], final_states[1]], 1)))}

    def parameter_roles(self) -> ParameterRoles:
        roles = {"embeddings": "embeddings", "lstm": "layers.0", "head": "head"}
        return ParameterRoles({name: roles[name.partition(".")[0]] for name, _ in self.named_parameters()}, "", "")
