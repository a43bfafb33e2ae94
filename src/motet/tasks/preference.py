"""Preference tuning with DPO: for each prompt, one answer was chosen and one rejected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.core.errors import ConfigError
from motet.datasets.corpus import Corpus
from motet.learning.data.chat_format import TemplateName
from motet.learning.data.features import IGNORE_INDEX, Column, Examples, Features, Ragged
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.direct_preference import REJECTED, DirectPreference, LogRatios, RewardMargins
from motet.tasks.instruct import check_completions_fit, describe_prompts, iterate_conversations, make_chat_format
from motet.tasks.task import Task


@dataclass(frozen=True)
class Preference(Task):
    """Training with DPO. The reference is the model before training, and its numbers are computed once.

    `accuracy` is the share of pairs in which training has raised the chosen answer above the rejected one; a pair on
    which nothing has changed counts one half.
    """

    template: TemplateName = "auto"
    template_options: tuple[tuple[str, Any], ...] = ()
    beta: float = 0.1
    labels: tuple[str, ...] = ()
    name: str = "preference"
    primary_metric: str = "accuracy"
    metric_names: tuple[str, ...] = ("accuracy", "margin", "loss")
    reference_readout: LogRatios = LogRatios()

    @property
    def objective(self) -> DirectPreference:
        return DirectPreference(self.beta)

    @property
    def readout(self) -> RewardMargins:
        return RewardMargins(self.beta)

    def build_features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        chat = make_chat_format(model, self.template, self.template_options)
        prompts = chat.tokenize_prompts(corpus.name, iterate_conversations(corpus))
        answers = {name: chat.tokenize_completions(corpus.column(name)) for name in ("chosen", "rejected")}
        columns: dict[str, Any] = {}
        removed = np.zeros(len(corpus), np.int64)
        for name, prefix in (("chosen", ""), ("rejected", REJECTED)):
            check_completions_fit(corpus.name, answers[name], chat, max_tokens, name)
            longest = [max(map(len, pair)) for pair in zip(*answers.values(), strict=True)]
            # Both answers follow the same tokens, or their likelihoods could not be compared.
            truncated = [chat.truncate(p, max_tokens - length) for p, length in zip(prompts, longest, strict=True)]
            texts = [[*prompt.tokens, *ids] for prompt, ids in zip(truncated, answers[name], strict=True)]
            removed = np.array([prompt.removed for prompt in truncated], np.int64)
            columns |= {
                f"{prefix}input_ids": Ragged.from_lists(texts, model.tokenizer.pad_token_id),
                f"{prefix}labels": Ragged.from_lists(answers[name], IGNORE_INDEX),
                f"{prefix}completion_start": np.array([len(prompt.tokens) for prompt in truncated], np.int64),
            }
        metadata: dict[str, Column] = {"removed_tokens": removed}
        return Features(corpus.fingerprint, columns, metadata=metadata, raw_columns=corpus.columns)

    def describe_features(self, features: Features, model: Model) -> list[str]:
        return describe_prompts(features, model, self.template)

    def chat_template(self, model: Model) -> str | None:
        return make_chat_format(model, self.template, self.template_options).template

    def compute_metrics(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        scores = self.score_examples(predictions, examples)
        means = {name: float(predictions[name].double().mean()) for name in ("margin", "loss")}
        return {"accuracy": float(scores.mean()), **means}

    def score_examples(self, predictions: Predictions, examples: Examples) -> np.ndarray:
        """Return 1 if the chosen answer is preferred, 0 if the other is, and 1/2 if neither is."""
        scores: np.ndarray = ((np.sign(predictions["margin"].numpy()) + 1) / 2).astype(np.float32)
        return scores


def preference(
    template: TemplateName = "auto", template_options: Mapping[str, Any] | None = None, beta: float = 0.1
) -> Preference:
    """Learn from pairs of answers which one is better (DPO). Metrics: accuracy, reward margin."""
    if beta <= 0:
        raise ConfigError(f"task.beta is {beta}; it must be above 0.")
    return Preference(template=template, template_options=tuple((template_options or {}).items()), beta=beta)
