"""One backbone for different tasks: BERT2BERT with private heads for each client.

In ATC (Dong et al. 2022), clients with classification, question answering and generation tasks learn from each other.
They share the encoder, the decoder with its language modeling head, and a separate masked language modeling head. The
pooler, the task head and the contrastive head are private. The shared part is initialized first, so it is the same for
every task and every number of labels.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from motet.core.errors import ConfigError
from motet.models.parameter_roles import ParameterRoles, find_norms, infer_parameter_roles

TASK_NAMES = ("classification", "regression", "tagging", "qa", "seq2seq")
EXPORT_CLASSES = {
    "classification": "AutoModelForSequenceClassification",
    "regression": "AutoModelForSequenceClassification",
    "tagging": "AutoModelForTokenClassification",
    "qa": "AutoModelForQuestionAnswering",
}


class MultiTaskModel(nn.Module):
    """A transformers encoder-decoder (`backbone`) with a head for one task. For seq2seq, `head` is None."""

    def __init__(self, backbone: Any, task: str, labels: Sequence[str]) -> None:
        super().__init__()
        if task not in TASK_NAMES:
            raise ConfigError(f"model.name: mixed: supports {', '.join(TASK_NAMES)}, not {task}.")
        encoder_config, width = backbone.config.encoder, backbone.config.decoder.hidden_size
        dropout = getattr(encoder_config, "hidden_dropout_prob", 0.1)
        self.backbone, self.task, self.labels = backbone, task, tuple(labels)
        self.mlm_head = copy.deepcopy(_lm_head(backbone.decoder))  # a copy, not tied to the decoder's head
        self.contrastive_head = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(width, width), nn.Tanh(), nn.Dropout(dropout), nn.Linear(width, width)
        )
        num_outputs = {"regression": 1, "qa": 2, "seq2seq": 0}.get(task, len(labels))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(encoder_config.hidden_size, num_outputs) if num_outputs else None

    @property
    def config(self) -> Any:
        return self.backbone.config

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **inputs: Tensor) -> Mapping[str, Tensor]:
        """Return the logits of the task: per text, per token, of the start and end of a span, or of the next token."""
        if self.head is None:
            return {"logits": self.lm_logits(self.decode(input_ids, attention_mask, inputs["decoder_input_ids"]))}
        types = {"token_type_ids": inputs["token_type_ids"]} if "token_type_ids" in inputs else {}
        output = self.backbone.encoder(input_ids=input_ids, attention_mask=attention_mask, **types)
        if self.task in ("classification", "regression"):
            pooled = getattr(output, "pooler_output", None)
            pooled = output.last_hidden_state[:, 0] if pooled is None else pooled
            return {"logits": self.head(self.dropout(pooled))}
        logits = self.head(self.dropout(output.last_hidden_state))
        if self.task == "qa":
            return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
        return {"logits": logits}

    def encode(self, input_ids: Tensor, attention_mask: Tensor, *types: Tensor) -> Tensor:
        """Return the encoder's last hidden states, [rows, tokens, width]; `types` may hold token type ids."""
        token_types = {"token_type_ids": types[0]} if types else {}
        output = self.backbone.encoder(input_ids=input_ids, attention_mask=attention_mask, **token_types)
        states: Tensor = output.last_hidden_state
        return states

    def decode(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:
        """Return the decoder's last hidden states."""
        states = self.encode(input_ids, attention_mask)
        return self._run_decoder(decoder_input_ids, states, attention_mask)

    def lm_logits(self, states: Tensor) -> Tensor:
        """Return the logits of the next token from the decoder's states."""
        logits: Tensor = _lm_head(self.backbone.decoder)(states)
        return logits

    def mlm_logits(self, states: Tensor) -> Tensor:
        """Return the logits of masked tokens from the encoder's states."""
        logits: Tensor = self.mlm_head(states)
        return logits

    def represent(self, tokens: Tensor, states: Tensor) -> Tensor:
        """Represent given encoder states for the contrastive loss, [rows, width].

        As in the reference code, padding is not masked.
        """
        return torch.as_tensor(self.contrastive_head(self._run_decoder(tokens, states, None)).mean(1))

    def _run_decoder(self, tokens: Tensor, states: Tensor, mask: Tensor | None) -> Tensor:
        output = self.backbone.decoder.base_model(
            input_ids=tokens, encoder_hidden_states=states, encoder_attention_mask=mask, use_cache=False
        )
        decoder_states: Tensor = output.last_hidden_state
        return decoder_states

    def generate(self, **options: Any) -> Tensor:
        tokens: Tensor = self.backbone.generate(**options)
        return tokens

    def parameter_roles(self) -> ParameterRoles:
        """Return the role of each parameter.

        The language modeling head is `decoder.head`, the masked language modeling head is `encoder.head`, and the
        private heads are `head`.
        """
        roles = {}
        for name, role in infer_parameter_roles(self.backbone).roles.items():
            stack = "decoder." if role.startswith("head") else "encoder." if role.startswith("pooler") else ""
            roles[f"backbone.{name}"] = f"{stack}{role}"
        norms = find_norms(self)
        for name, _ in self.named_parameters():
            if not name.startswith("backbone."):
                role = "encoder.head" if name.startswith("mlm_head.") else "head"
                roles[name] = f"{role}.norm" if name.rpartition(".")[0] in norms else role
        return ParameterRoles(roles, "", "")

    def save_pretrained(self, folder: Path) -> None:
        """Save as the transformers class of the task: an encoder with its head, or the encoder-decoder."""
        import transformers

        if self.head is None:
            self.backbone.save_pretrained(folder)
            return
        config = copy.deepcopy(self.backbone.config.encoder)
        config.num_labels = self.head.out_features
        if self.task in ("classification", "tagging"):
            config.id2label = dict(enumerate(self.labels))
            config.label2id = {label: i for i, label in enumerate(self.labels)}
        model = getattr(transformers, EXPORT_CLASSES[self.task]).from_config(config)
        missing, _ = model.base_model.load_state_dict(self.backbone.encoder.state_dict(), strict=False)
        heads = [submodule for name, submodule in model.named_children() if name in ("classifier", "qa_outputs")]
        if missing or len(heads) != 1 or not isinstance(heads[0], nn.Linear):
            raise ConfigError(
                f"a {config.model_type} with this head is not a class of transformers, so it cannot be exported. "
                "Use an encoder of the BERT family."
            )
        heads[0].load_state_dict(self.head.state_dict())
        model.save_pretrained(folder)


def _lm_head(decoder: Any) -> Any:
    """Return the language modeling head of a decoder: `cls` in the BERT family, `lm_head` in the RoBERTa family."""
    head = getattr(decoder, "cls", None) or getattr(decoder, "lm_head", None)
    if head is None:
        raise ConfigError(
            f"model.name: {decoder.config.model_type} has no language modeling head. Use an encoder of the BERT family."
        )
    return head
