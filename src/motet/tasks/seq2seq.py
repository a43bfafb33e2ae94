"""A text, and another one to be written from it: a headline, a summary, a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.core.errors import ConfigError
from motet.datasets.corpus import Corpus
from motet.learning.data.features import IGNORE_INDEX, Examples, Features, Ragged
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import GeneratedTokens
from motet.learning.objectives.supervised import TokenCrossEntropy
from motet.tasks.text_metrics import generation_example_scores, generation_scores
from motet.tasks.tokenization import BATCH, tokenize


@dataclass(frozen=True)
class Seq2Seq:
    """The decoder sees the target shifted by one, and its labels are the target. Decoding is by beam search."""

    target_tokens: int = 64
    smoothing: float = 0.0
    readout: GeneratedTokens = GeneratedTokens()
    labels: tuple[str, ...] = ()
    name: str = "seq2seq"
    primary_metric: str = "rougeL"
    metric_names: tuple[str, ...] = ("rougeL", "rouge1", "rouge2", "rougeL_b12", "bleu", "meteor", "loss")

    @property
    def objective(self) -> TokenCrossEntropy:
        return TokenCrossEntropy(smoothing=self.smoothing)

    def features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        tokenizer, config = model.tokenizer, model.module.config
        start = getattr(config, "decoder_start_token_id", None)
        if start is None:
            raise ConfigError(
                f"{model.key}: its configuration names no decoder_start_token_id, so writing cannot begin; set it."
            )
        targets: list[list[int]] = []
        for at in range(0, len(corpus), BATCH):
            some = list(corpus.column("target")[at : at + BATCH])
            targets += tokenizer(text_target=some, truncation=True, max_length=self.target_tokens)["input_ids"]
        before = [[int(start), *row[:-1]] for row in targets]
        columns = {
            **tokenize(tokenizer, corpus.column("source"), max_tokens),
            "labels": Ragged.from_lists([row or [IGNORE_INDEX] for row in targets], IGNORE_INDEX),
            "decoder_input_ids": Ragged.from_lists(before, tokenizer.pad_token_id),
        }
        return Features(corpus.fingerprint, columns, raw_columns=corpus.columns, tokenizer=tokenizer)

    def texts(self, corpus: Corpus) -> Sequence[str]:
        """The targets: by them FedNLP tells examples alike."""
        return corpus.column("target")

    def example_scores(self, readings: Predictions, examples: Examples) -> np.ndarray:
        """ROUGE-L of each text; with tallies."""
        return generation_example_scores(*_written(readings, examples))

    def metrics(self, readings: Predictions, examples: Examples) -> dict[str, float]:
        scores = generation_scores(*_written(readings, examples))
        count = int(readings["count"].sum())
        return {**scores, "loss": float(readings["loss"].double().sum()) / max(1, count)}


def _written(readings: Predictions, examples: Examples) -> tuple[list[str], list[str]]:
    """What the model wrote, and what it should have written."""
    texts, tokenizer = examples.features.raw_columns, examples.features.tokenizer
    table = readings["predictions"].numpy()
    said = tokenizer.batch_decode(
        np.where(table == IGNORE_INDEX, tokenizer.pad_token_id, table), skip_special_tokens=True
    )
    return [text.strip() for text in said], [texts["target"][int(row)] for row in examples.rows]


def seq2seq(
    corpus: Corpus,
    target_tokens: int = 64,
    smoothing: float = 0.0,
    beams: int = 4,
    length_penalty: float = 2.0,
    shortest: int = 0,
    no_repeat: int = 0,
) -> Seq2Seq:
    """A text and another one to be written from it: ROUGE-1/2/L, BLEU-4, METEOR."""
    if not 0 <= smoothing < 1:
        raise ConfigError(f"task.smoothing is {smoothing}; it is a share of the probability, from 0 to below 1.")
    for name, value in (("target_tokens", target_tokens), ("beams", beams)):
        if value < 1:
            raise ConfigError(f"task.{name} is {value}; it must be at least 1.")
    corpus.column("target")
    readout = GeneratedTokens(
        num_beams=beams,
        max_new_tokens=target_tokens,
        min_new_tokens=shortest,
        length_penalty=length_penalty,
        no_repeat_ngram_size=no_repeat,
    )
    return Seq2Seq(target_tokens, smoothing, readout)
