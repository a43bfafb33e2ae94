"""Sequence-to-sequence generation: write a target from a source, such as a headline, a summary or a question."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motet.core.errors import ConfigError
from motet.datasets.corpus import Corpus
from motet.learning.data.features import IGNORE_INDEX, Examples, Features, Ragged
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.modules.position_embeddings import check_positions
from motet.learning.objectives.readouts import GeneratedTokens
from motet.learning.objectives.supervised import TokenCrossEntropy
from motet.tasks.task import Task
from motet.tasks.text_metrics import TextMetrics, choose_bleu_tokenizer
from motet.tasks.tokenization import BATCH_SIZE, decode_generated, tokenize


@dataclass(frozen=True)
class Seq2Seq(Task):
    """Training with teacher forcing: the decoder input is the target shifted by one. Evaluation with beam search."""

    max_target_tokens: int = 64
    label_smoothing: float = 0.0
    readout: GeneratedTokens = GeneratedTokens()
    text_metrics: TextMetrics = TextMetrics()
    labels: tuple[str, ...] = ()
    name: str = "seq2seq"
    primary_metric: str = "rougeL"
    metric_names: tuple[str, ...] = ("rougeL", "rouge1", "rouge2", "rougeLsum", "rougeL_b12", "bleu", "meteor", "loss")

    @property
    def objective(self) -> TokenCrossEntropy:
        return TokenCrossEntropy(smoothing=self.label_smoothing)

    @property
    def metric_details(self) -> dict[str, str]:
        return self.text_metrics.describe()

    def build_features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        tokenizer, config = model.tokenizer, model.module.config
        start_token = getattr(config, "decoder_start_token_id", None)
        if start_token is None:
            raise ConfigError(
                f"{model.key}: its configuration has no decoder_start_token_id, the first token of the decoder. "
                "Set it in the model's config.json."
            )
        targets: list[list[int]] = []
        for start in range(0, len(corpus), BATCH_SIZE):
            batch = list(corpus.column("target")[start : start + BATCH_SIZE])
            targets += tokenizer(text_target=batch, truncation=True, max_length=self.max_target_tokens)["input_ids"]
        decoder_inputs = [[int(start_token), *row[:-1]] for row in targets]
        columns = {
            **tokenize(tokenizer, corpus.column("source"), max_tokens),
            "labels": Ragged.from_lists([row or [IGNORE_INDEX] for row in targets], IGNORE_INDEX),
            "decoder_input_ids": Ragged.from_lists(decoder_inputs, tokenizer.pad_token_id),
        }
        return Features(corpus.fingerprint, columns, raw_columns=corpus.columns, tokenizer=tokenizer)

    def check_features(self, features: Features, model: Model) -> None:
        needed = self.max_target_tokens
        check_positions(model.module, needed, f"task.max_target_tokens is {needed}", "Lower task.max_target_tokens.")

    def compute_metrics(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        metrics = self.text_metrics.compute(*_decode(predictions, examples))
        count = int(predictions["count"].sum())
        return {**metrics, "loss": float(predictions["loss"].double().sum()) / max(1, count)}

    def score_examples(self, predictions: Predictions, examples: Examples) -> np.ndarray:
        """Return ROUGE-L of each text; then the statistics of the other metrics."""
        return self.text_metrics.score_texts(*_decode(predictions, examples))


def _decode(predictions: Predictions, examples: Examples) -> tuple[list[str], list[str]]:
    """Return the generated texts and the references."""
    references = examples.features.raw_columns["target"]
    return decode_generated(predictions, examples), [references[int(row)] for row in examples.rows]


def seq2seq(
    corpus: Corpus,
    max_target_tokens: int = 64,
    label_smoothing: float = 0.0,
    num_beams: int = 4,
    length_penalty: float = 2.0,
    min_target_tokens: int = 0,
    no_repeat_ngram_size: int = 0,
    stemming: bool = True,
) -> Seq2Seq:
    """Generate a target text from a source text. Metrics: ROUGE-1/2/L/Lsum, BLEU-4, METEOR."""
    if not 0 <= label_smoothing < 1:
        raise ConfigError(f"task.label_smoothing is {label_smoothing}; expected a number from 0 to below 1.")
    for name, value in (("max_target_tokens", max_target_tokens), ("num_beams", num_beams)):
        if value < 1:
            raise ConfigError(f"task.{name} is {value}; it must be at least 1.")
    text_metrics = TextMetrics(stemming=stemming, bleu_tokenizer=choose_bleu_tokenizer(corpus.column("target")))
    readout = GeneratedTokens(
        num_beams=num_beams,
        max_new_tokens=max_target_tokens,
        min_new_tokens=min_target_tokens,
        length_penalty=length_penalty,
        no_repeat_ngram_size=no_repeat_ngram_size,
    )
    return Seq2Seq(max_target_tokens, label_smoothing, readout, text_metrics)
