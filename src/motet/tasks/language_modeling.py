"""What comes next? Every token from those before it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from motet.core.errors import ConfigError
from motet.datasets.corpus import Corpus
from motet.learning.data.features import IGNORE_INDEX, Examples, Features, Ragged
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import NextTokenAccuracy
from motet.learning.objectives.supervised import TokenCrossEntropy
from motet.tasks.sufficient_statistics import with_statistics
from motet.tasks.tokenization import BATCH, offsets_from_sizes


@dataclass(frozen=True)
class LanguageModeling:
    """Texts are cut into pieces of at most `max_tokens`, each ended by the end-of-text token where there is one.

    With `group`, a client's texts are put end to end before they are cut.
    """

    group: bool = True
    labels: tuple[str, ...] = ()
    name: str = "lm"
    primary_metric: str = "accuracy"
    metric_names: tuple[str, ...] = ("accuracy", "perplexity", "loss")
    objective: TokenCrossEntropy = TokenCrossEntropy(shift=1)
    readout: NextTokenAccuracy = NextTokenAccuracy()

    def features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        tokenizer = model.tokenizer
        end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
        pieces: list[list[int]] = []
        counts: list[int] = []
        texts = corpus.column("text")
        for at in range(0, len(texts), BATCH):
            for row in tokenizer(list(texts[at : at + BATCH]), add_special_tokens=False, verbose=False)["input_ids"]:
                ids = [*row, *end]
                cut = [ids[i : i + max_tokens] for i in range(0, max(1, len(ids)), max_tokens)]
                cut = [c for c in cut if len(c) > 1] or [
                    [*ids[:1], tokenizer.pad_token_id]
                ]  # one token predicts nothing
                pieces += cut
                counts.append(len(cut))
        ids_ = Ragged.from_lists(pieces, tokenizer.pad_token_id)
        labels = Ragged(ids_.values, ids_.offsets, IGNORE_INDEX)
        return Features(
            corpus.fingerprint,
            {"input_ids": ids_, "labels": labels},
            offsets_from_sizes(counts),
            raw_columns=corpus.columns,
        )

    def texts(self, corpus: Corpus) -> Sequence[str]:
        return corpus.column("text")

    def example_scores(self, readings: Predictions, examples: Examples) -> np.ndarray:
        """The share of next tokens that are right, a piece of text; with tallies."""
        right, count = readings["correct"].numpy(), readings["count"].numpy()
        return with_statistics(right / np.maximum(count, 1), np.stack([right, count, count], axis=1))

    def metrics(self, readings: Predictions, examples: Examples) -> dict[str, float]:
        count = max(1, int(readings["count"].sum()))
        loss = float(readings["loss"].double().sum()) / count
        accuracy = float(readings["correct"].sum()) / count
        return {"accuracy": accuracy, "perplexity": math.exp(min(loss, 700.0)), "loss": loss}


def group_texts(ids: Ragged, shares: Iterable[np.ndarray], max_tokens: int) -> tuple[Ragged, np.ndarray]:
    """The pieces of each share put end to end and cut anew, and where each share's now begin.

    Short posts no longer leave batches half empty. Nothing is put together across shares: they are different people.
    """
    pieces: list[np.ndarray] = []
    counts = []
    for share in shares:
        stream = np.concatenate([ids[r] for r in share]) if len(share) else np.zeros(0, np.int32)
        cut = [stream[i : i + max_tokens] for i in range(0, len(stream), max_tokens)]
        if len(cut) > 1 and len(cut[-1]) == 1:  # one token predicts nothing
            cut.pop()
        pieces += cut
        counts.append(len(cut))
    values = np.concatenate(pieces) if pieces else np.zeros(0, np.int32)
    return Ragged(values, offsets_from_sizes([len(p) for p in pieces]), ids.pad), offsets_from_sizes(counts)


def language_modeling(corpus: Corpus, group: bool = True) -> LanguageModeling:
    """Every token from those before it: next-token accuracy and perplexity."""
    if not any(corpus.column("text")[: corpus.num_train]):
        raise ConfigError(f"{corpus.name}: all training texts are empty, so there is nothing to predict.")
    return LanguageModeling(group)
