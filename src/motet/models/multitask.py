"""One backbone for tasks of every kind: BERT2BERT with what each client adds to it.

ATC (Dong et al. 2022) lets clients that classify, find answers and write learn from each other. All have the same encoder, the
same decoder with a language-model head of its own, and a separate head that names masked words; beside these, for themselves
alone, a pooler, a head for their task and one for contrast. The common part comes out the same for every task and every number
of labels, because it is made first.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from motet.core.errors import ConfigError
from motet.models.parameter_roles import ParameterRoles, infer_parameter_roles

LOGITS = {"classification": "text", "regression": "text", "tagging": "token", "qa": "token", "seq2seq": "none"}


class MultiTaskModel(nn.Module):
    """`backbone` is transformers' encoder-decoder; `namer` names masked words, `contrast` and `head` are private."""

    def __init__(self, backbone: Any, task: str, labels: Sequence[str]) -> None:
        super().__init__()
        if task not in LOGITS:
            raise ConfigError(f"model.name: mixed: is for {', '.join(LOGITS)}, not for {task}.")
        encoder, wide = backbone.config.encoder, backbone.config.decoder.hidden_size
        dropout = getattr(encoder, "hidden_dropout_prob", 0.1)
        self.backbone, self.task, self.labels = backbone, task, tuple(labels)
        self.namer = copy.deepcopy(_writer(backbone.decoder))  # begins as the decoder's, and is tied to nothing
        steps = [nn.Dropout(dropout), nn.Linear(wide, wide), nn.Tanh(), nn.Dropout(dropout), nn.Linear(wide, wide)]
        self.contrast = nn.Sequential(*steps)
        outputs = {"regression": 1, "qa": 2, "seq2seq": 0}.get(task, len(labels))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(encoder.hidden_size, outputs) if outputs else None

    @property
    def config(self) -> Any:
        return self.backbone.config

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **other: Tensor) -> Mapping[str, Tensor]:
        """What the client's task reads: one row of scores a text, one a token, two ends of a span, or the next words."""
        if self.head is None:
            return {"logits": self.lm_logits(self.decode(input_ids, attention_mask, other["decoder_input_ids"]))}
        types = {"token_type_ids": other["token_type_ids"]} if "token_type_ids" in other else {}
        output = self.backbone.encoder(input_ids=input_ids, attention_mask=attention_mask, **types)
        if LOGITS[self.task] == "text":
            pooled = getattr(output, "pooler_output", None)
            return {"logits": self.head(self.dropout(output.last_hidden_state[:, 0] if pooled is None else pooled))}
        scores = self.head(self.dropout(output.last_hidden_state))
        if self.task == "qa":
            return {"start_logits": scores[..., 0], "end_logits": scores[..., 1]}
        return {"logits": scores}

    def encode(self, input_ids: Tensor, attention_mask: Tensor, *types: Tensor) -> Tensor:
        """The encoder's last states, [rows, tokens, width]."""
        other = {"token_type_ids": types[0]} if types else {}
        states: Tensor = self.backbone.encoder(
            input_ids=input_ids, attention_mask=attention_mask, **other
        ).last_hidden_state
        return states

    def decode(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:
        """The decoder's last states for what was written so far."""
        states = self.encode(input_ids, attention_mask)
        return self._decoder_states(decoder_input_ids, states, attention_mask)

    def lm_logits(self, states: Tensor) -> Tensor:
        """The decoder's scores of the next word."""
        scores: Tensor = _writer(self.backbone.decoder)(states)
        return scores

    def mlm_logits(self, states: Tensor) -> Tensor:
        """The scores of the word that stands at each of the encoder's states."""
        scores: Tensor = self.namer(states)
        return scores

    def represent(self, tokens: Tensor, states: Tensor) -> Tensor:
        """[rows, width]: what this client makes of encoder states it is given; no padding is masked (reference code)."""
        return torch.as_tensor(self.contrast(self._decoder_states(tokens, states, None)).mean(1))

    def _decoder_states(self, tokens: Tensor, states: Tensor, mask: Tensor | None) -> Tensor:
        output = self.backbone.decoder.base_model(
            input_ids=tokens, encoder_hidden_states=states, encoder_attention_mask=mask, use_cache=False
        )
        found: Tensor = output.last_hidden_state
        return found

    def generate(self, **options: Any) -> Tensor:
        written: Tensor = self.backbone.generate(**options)
        return written

    def parameter_roles(self) -> ParameterRoles:
        """The decoder's language-model head is `decoder.head`, the one for masked words `encoder.head`; `head` is private."""
        parts = {}
        for name, part in infer_parameter_roles(self.backbone).roles.items():
            place = part.replace("head", "decoder.head") if part.startswith("head") else part
            parts[f"backbone.{name}"] = f"encoder.{place}" if place.startswith("pooler") else place
        norms = {p for p, m in self.named_modules() if "Norm" in type(m).__name__}
        for name, _ in self.named_parameters():
            if not name.startswith("backbone."):
                mark = ".norm" if name.rpartition(".")[0] in norms else ""
                parts[name] = ("encoder.head" if name.startswith("namer.") else "head") + mark
        return ParameterRoles(parts, "", "")

    def save_pretrained(self, folder: Path) -> None:
        """As transformers' own class for the task: the encoder with its head, or the encoder-decoder."""
        import transformers

        if self.head is None:
            self.backbone.save_pretrained(folder)
            return
        kinds = {"tagging": "TokenClassification", "qa": "QuestionAnswering"}
        auto = getattr(transformers, f"AutoModelFor{kinds.get(self.task, 'SequenceClassification')}")
        config = copy.deepcopy(self.backbone.config.encoder)
        config.num_labels = self.head.out_features
        if self.task in ("classification", "tagging"):
            config.id2label = dict(enumerate(self.labels))
            config.label2id = {name: i for i, name in enumerate(self.labels)}
        model = auto.from_config(config)
        missing, _ = model.base_model.load_state_dict(self.backbone.encoder.state_dict(), strict=False)
        heads = [m for n, m in model.named_children() if n in ("classifier", "qa_outputs")]
        if missing or len(heads) != 1 or not isinstance(heads[0], nn.Linear):
            raise ConfigError(
                f"a {config.model_type} with this head has no class of transformers' own, so it cannot be exported."
            )
        heads[0].load_state_dict(self.head.state_dict())
        model.save_pretrained(folder)


def _writer(decoder: Any) -> Any:
    """The language-model head of a decoder, as BERT's family or RoBERTa's calls it."""
    found = getattr(decoder, "cls", None) or getattr(decoder, "lm_head", None)
    if found is None:
        raise ConfigError(
            f"model.name: a {decoder.config.model_type} has no language-model head; use an encoder of BERT's kind."
        )
    return found
