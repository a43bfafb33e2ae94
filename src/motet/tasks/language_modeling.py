"""Causal language modeling: predict every token from the tokens before it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from motet.core.errors import ConfigError
from motet.datasets.corpus import Corpus
from motet.learning.data.chat_format import starts_with_bos
from motet.learning.data.features import IGNORE_INDEX, Examples, Features, Ragged
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import NextTokenAccuracy
from motet.learning.objectives.supervised import TokenCrossEntropy
from motet.tasks.metric_statistics import with_statistics
from motet.tasks.task import Task
from motet.tasks.tokenization import BATCH_SIZE, offsets_from_sizes


@dataclass(frozen=True)
class LanguageModeling(Task):
    """Texts begin and end as the tokenizer says, and are cut into chunks of at most `max_tokens`.

    Every text ends with the end-of-text token, if there is one. It begins with the beginning-of-text token if the
    tokenizer writes that before texts, as those of Llama and Gemma do: these models expect it.

    With `group_texts`, the texts of a client are concatenated before they are cut.
    """

    group_texts: bool = True
    labels: tuple[str, ...] = ()
    name: str = "lm"
    primary_metric: str = "accuracy"
    metric_names: tuple[str, ...] = ("accuracy", "perplexity", "loss")
    objective: TokenCrossEntropy = TokenCrossEntropy(shift=1)
    readout: NextTokenAccuracy = NextTokenAccuracy()

    def build_features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        tokenizer = model.tokenizer
        begin = [tokenizer.bos_token_id] if starts_with_bos(tokenizer) else []
        end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
        smallest = 1 if self.group_texts else 2  # one token predicts nothing, but an end token separates texts
        chunks: list[list[int]] = []
        counts: list[int] = []
        texts = corpus.column("text")
        for start in range(0, len(texts), BATCH_SIZE):
            batch = list(texts[start : start + BATCH_SIZE])
            for row in tokenizer(batch, add_special_tokens=False, verbose=False)["input_ids"]:
                ids = [*begin, *row, *end]
                text_chunks = [ids[i : i + max_tokens] for i in range(0, max(1, len(ids)), max_tokens)]
                text_chunks = [chunk for chunk in text_chunks if len(chunk) >= smallest]
                text_chunks = text_chunks or [ids[:1] or [tokenizer.pad_token_id]]
                chunks += text_chunks
                counts.append(len(text_chunks))
        input_ids = Ragged.from_lists(chunks, tokenizer.pad_token_id)
        return Features(
            key=corpus.fingerprint,
            columns={"input_ids": input_ids, "labels": Ragged(input_ids.values, input_ids.offsets, IGNORE_INDEX)},
            example_offsets=offsets_from_sizes(counts),
            raw_columns=corpus.columns,
        )

    def compute_metrics(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        count = max(1, int(predictions["count"].sum()))
        loss = float(predictions["loss"].double().sum()) / count
        accuracy = float(predictions["correct"].sum()) / count
        return {"accuracy": accuracy, "perplexity": math.exp(min(loss, 700.0)), "loss": loss}

    def score_examples(self, predictions: Predictions, examples: Examples) -> np.ndarray:
        """Return the next-token accuracy of each chunk; then the statistics of the accuracy."""
        correct, count = predictions["correct"].numpy(), predictions["count"].numpy()
        return with_statistics(correct / np.maximum(count, 1), np.stack([correct, count, count], axis=1))


def group_texts(ids: Ragged, clients: Iterable[np.ndarray], max_tokens: int) -> tuple[Ragged, np.ndarray]:
    """Concatenate the chunks of each client and cut them again; return the chunks and where each client's begin.

    This avoids batches of mostly padding if texts are short. Texts of different clients are never concatenated.
    """
    chunks: list[np.ndarray] = []
    counts = []
    for rows in clients:
        stream = np.concatenate([ids[row] for row in rows]) if len(rows) else np.zeros(0, np.int32)
        client_chunks = [stream[i : i + max_tokens] for i in range(0, len(stream), max_tokens)]
        if len(client_chunks) > 1 and len(client_chunks[-1]) == 1:  # one token predicts nothing
            client_chunks.pop()
        chunks += client_chunks
        counts.append(len(client_chunks))
    values = np.concatenate(chunks) if chunks else np.zeros(0, np.int32)
    return Ragged(values, offsets_from_sizes([len(chunk) for chunk in chunks]), ids.pad), offsets_from_sizes(counts)


def language_modeling(corpus: Corpus, group_texts: bool = True) -> LanguageModeling:
    """Predict the next token of a text. Metrics: next-token accuracy and perplexity."""
    if not any(corpus.column("text")[: corpus.num_train]):
        raise ConfigError(f"{corpus.name}: all training texts are empty; expected at least one token to predict.")
    return LanguageModeling(group_texts)
