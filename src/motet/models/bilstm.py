"""FedNLP's second kind of model: LSTMs over word embeddings."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from motet.models.parameter_roles import ParameterRoles


class BiLSTM(nn.Module):
    """One label a text (read at its true ends), a tag a word, or the next word; the last reads forwards only."""

    def __init__(
        self, task: str, vocabulary: int, labels: int, pad: int, width: int = 64, hidden: int = 64, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.settings = {
            "task": task,
            "vocabulary": vocabulary,
            "labels": labels,
            "pad": pad,
            "width": width,
            "hidden": hidden,
        }
        self.task = task
        both = task != "lm"
        self.embeddings = nn.Embedding(vocabulary, width, padding_idx=pad)
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=both)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden * (1 + both), vocabulary if task == "lm" else labels)

    @staticmethod
    def load(folder: str | Path) -> BiLSTM:
        """One that was exported; its tokenizer is in the same folder, and `labels_named` in its config.json."""
        from safetensors.torch import load_file

        settings = json.loads((Path(folder) / "config.json").read_text("utf-8"))
        made = BiLSTM(**{name: settings[name] for name in ("task", "vocabulary", "labels", "pad", "width", "hidden")})
        made.load_state_dict(load_file(str(Path(folder) / "model.safetensors")))
        return made.eval()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Tensor) -> dict[str, Tensor]:
        words = self.dropout(self.embeddings(input_ids))
        lengths = attention_mask.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        states, (last, _rest) = self.lstm(packed)
        if self.task in ("tagging", "lm"):
            each, _lengths = pad_packed_sequence(states, batch_first=True, total_length=input_ids.shape[1])
            return {"logits": self.head(self.dropout(each))}
        return {
            "logits": self.head(self.dropout(torch.cat([last[0], last[1]], 1)))
        }  # after the last real word, each way

    def parameter_roles(self) -> ParameterRoles:
        places = {"embeddings": "embeddings", "lstm": "layers.0", "head": "head"}
        return ParameterRoles({n: places[n.partition(".")[0]] for n, _ in self.named_parameters()}, "", "")
