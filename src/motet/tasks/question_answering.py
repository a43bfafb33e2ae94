"""Extractive question answering: find the answer to a question in a context.

A long context is split into windows. As in BERT's code for SQuAD, `stride` is the distance between the starts of two
windows, but at most the length of a window, so that they cover the context. The target of a window without the answer, or
of an unanswerable question, is the first token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from motet.core.errors import ConfigError, DataError
from motet.datasets.corpus import Corpus
from motet.learning.data.features import Examples, Features, Ragged
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import SpanLogits
from motet.learning.objectives.supervised import SpanCrossEntropy
from motet.tasks.metric_statistics import with_statistics
from motet.tasks.squad_metrics import exact_match, scored_answers, token_f1
from motet.tasks.task import Task
from motet.tasks.tokenization import BATCH_SIZE, offsets_from_sizes

MIN_CONTEXT_TOKENS = 8  # in a window


class PairTemplate(NamedTuple):
    """The special tokens before, between and after two texts, and the token types of both texts."""

    before: list[int]
    between: list[int]
    after: list[int]
    types: tuple[int, int] | None

    @property
    def num_special_tokens(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)


@dataclass(frozen=True)
class SpanExtraction(Task):
    """`n_best` starts and ends are combined in each window; `null_threshold` is the one of SQuAD 2.0's script."""

    stride: int = 128
    max_question_tokens: int = 64
    max_answer_tokens: int = 30
    n_best: int = 20
    null_threshold: float = 0.0
    has_unanswerable: bool = False
    labels: tuple[str, ...] = ("start", "end")
    name: str = "qa"
    primary_metric: str = "f1"
    metric_names: tuple[str, ...] = ("f1", "em", "f1_pairs", "em_pairs", "loss")
    objective: SpanCrossEntropy = SpanCrossEntropy()
    readout: SpanLogits = SpanLogits()

    @property
    def metric_details(self) -> dict[str, str]:
        script = f"script of SQuAD {'2.0' if self.has_unanswerable else '1.1'}"
        pairs = f"{script}; mean over question-answer pairs, as in FedNLP"
        return {"f1": script, "em": script, "f1_pairs": pairs, "em_pairs": pairs}

    def build_features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        tokenizer = model.tokenizer
        template = infer_pair_template(tokenizer)
        capacity = max_tokens - template.num_special_tokens - self.max_question_tokens
        if capacity < MIN_CONTEXT_TOKENS:
            raise ConfigError(
                f"model.max_tokens is {max_tokens}; with task.max_question_tokens={self.max_question_tokens} that "
                f"leaves {capacity} tokens for the context. Raise the first or lower the second."
            )
        windows = _WindowBuilder(template, max_tokens, self.stride)
        for start in range(0, len(corpus), BATCH_SIZE):
            batch = slice(start, start + BATCH_SIZE)
            questions = tokenizer(list(corpus.column("question")[batch]), add_special_tokens=False)["input_ids"]
            contexts = tokenizer(
                list(corpus.column("context")[batch]),
                add_special_tokens=False,
                return_offsets_mapping=True,
                verbose=False,  # no warning about long texts: they are split into windows
            )
            rows = zip(questions, contexts["input_ids"], contexts["offset_mapping"], strict=True)
            for i, (question, context, offsets) in enumerate(rows):
                answer = _first_answer_span(corpus, start + i)
                windows.add(question[: self.max_question_tokens], context, offsets, answer)
        return windows.build(corpus, tokenizer.pad_token_id)

    def compute_metrics(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        """Return EM and F1 as in SQuAD (best over the answers), and as means over question-answer pairs."""
        best: dict[str, list[float]] = {"f1": [], "em": []}
        pairs: dict[str, list[float]] = {"f1": [], "em": []}
        for prediction, answers in self._answer_pairs(predictions, examples):
            for name, scores in self._score_answers(prediction, answers).items():
                best[name].append(max(scores))
                pairs[name] += scores
        means = {name: float(np.mean(v)) if v else 0.0 for name, v in best.items()}
        means |= {f"{name}_pairs": float(np.mean(v)) if v else 0.0 for name, v in pairs.items()}
        return {**means, "loss": float(predictions["loss"].double().mean())}

    def score_examples(self, predictions: Predictions, examples: Examples) -> np.ndarray:
        """Return the F1 of each question (best over the answers); then its exact match."""
        scores = [self._score_answers(*pair) for pair in self._answer_pairs(predictions, examples)]
        f1, em = (np.array([max(row[name]) for row in scores]) for name in ("f1", "em"))
        return with_statistics(f1, em)

    def _score_answers(self, prediction: str, answers: Sequence[str]) -> dict[str, list[float]]:
        """Return F1 and exact match with each answer."""
        return {
            "f1": [token_f1(prediction, answer, has_unanswerable=self.has_unanswerable) for answer in answers],
            "em": [exact_match(prediction, answer) for answer in answers],
        }

    def _answer_pairs(self, predictions: Predictions, examples: Examples) -> list[tuple[str, list[str]]]:
        """Return the predicted answer and the true answers of each question; [""] if it is unanswerable."""
        answers = examples.features.raw_columns["answers"]
        decoded = self.decode(predictions, examples)
        return [
            (text, scored_answers(answers[example], has_unanswerable=self.has_unanswerable))
            for example, text in decoded.items()
        ]

    def decode(self, predictions: Predictions, examples: Examples) -> dict[int, str]:
        """Return the best span of each example over its windows, or "" if the score of no answer is higher."""
        starts, ends = predictions["start"].numpy(), predictions["end"].numpy()
        best: dict[int, tuple[float, str]] = {}
        null_scores: dict[int, float] = {}
        features = examples.features
        for i, row in enumerate(examples.rows):
            example = int(features.example_ids(np.array([row]))[0])
            score, text = self._best_span(features, int(row), example, starts[i], ends[i])
            if example not in best or score > best[example][0]:
                best[example] = (score, text)
            null_scores[example] = min(null_scores.get(example, np.inf), float(starts[i][0] + ends[i][0]))
        if not self.has_unanswerable:
            return {example: text for example, (_, text) in best.items()}
        return {
            example: "" if null_scores[example] - score > self.null_threshold else text
            for example, (score, text) in best.items()
        }

    def _best_span(
        self, features: Features, row: int, example: int, start_logits: np.ndarray, end_logits: np.ndarray
    ) -> tuple[float, str]:
        """Combine the n best starts and ends in the context; spans must be ordered and not too long."""
        token_starts, token_ends = features.ragged("token_starts"), features.ragged("token_ends")
        context_tokens = np.flatnonzero(token_starts[row] >= 0)
        if not len(context_tokens):
            return -np.inf, ""
        starts = context_tokens[np.argsort(-start_logits[context_tokens], kind="stable")[: self.n_best]]
        ends = context_tokens[np.argsort(-end_logits[context_tokens], kind="stable")[: self.n_best]]
        scores = start_logits[starts][:, None] + end_logits[ends][None]
        lengths = ends[None] - starts[:, None]
        scores = np.where((lengths >= 0) & (lengths < self.max_answer_tokens), scores, -np.inf)
        i, j = np.unravel_index(int(scores.argmax()), scores.shape)
        context = features.raw_columns["context"][example]
        text = context[token_starts[row][starts[i]] : token_ends[row][ends[j]]]
        score = float(scores[i, j])
        return score, text if np.isfinite(score) else ""


class _WindowBuilder:
    """Collects windows, one list per column. Tokens outside the context have the character offset -1."""

    def __init__(self, template: PairTemplate, max_tokens: int, stride: int) -> None:
        self.template, self.max_tokens, self.stride = template, max_tokens, stride
        self.ids: list[list[int]] = []
        self.types: list[list[int]] = []
        self.token_starts: list[list[int]] = []
        self.token_ends: list[list[int]] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.counts: list[int] = []

    def add(
        self,
        question: list[int],
        context: list[int],
        offsets: Sequence[tuple[int, int]],
        answer: tuple[int, int] | None,
    ) -> None:
        """Add the windows of one question; `answer` is a character span of the context."""
        before, between, after, types = self.template
        prefix = [*before, *question, *between]
        capacity = self.max_tokens - len(prefix) - len(after)
        count = 0
        for first in range(0, max(1, len(context)), min(self.stride, capacity)):
            window = slice(first, first + capacity)
            self.ids.append([*prefix, *context[window], *after])
            no_prefix, no_suffix = [-1] * len(prefix), [-1] * len(after)
            self.token_starts.append([*no_prefix, *(start for start, _ in offsets[window]), *no_suffix])
            self.token_ends.append([*no_prefix, *(end for _, end in offsets[window]), *no_suffix])
            if types is not None:
                self.types.append([types[0]] * len(prefix) + [types[1]] * (len(self.ids[-1]) - len(prefix)))
            start, end = self._find_tokens(answer)
            self.starts.append(start)
            self.ends.append(end)
            count += 1
            if first + capacity >= len(context):
                break
        self.counts.append(count)

    def _find_tokens(self, answer: tuple[int, int] | None) -> tuple[int, int]:
        """Return the first and last token of the answer in the last window, or (0, 0) if it is not all inside."""
        if answer is None:
            return 0, 0
        starts, ends = np.asarray(self.token_starts[-1]), np.asarray(self.token_ends[-1])
        tokens = np.flatnonzero((starts >= 0) & (ends > answer[0]) & (starts < answer[1]))
        if not len(tokens) or starts[tokens[0]] > answer[0] or ends[tokens[-1]] < answer[1]:
            return 0, 0
        return int(tokens[0]), int(tokens[-1])

    def build(self, corpus: Corpus, pad: int) -> Features:
        columns: dict[str, Ragged | np.ndarray] = {"input_ids": Ragged.from_lists(self.ids, pad)}
        if self.types:
            columns["token_type_ids"] = Ragged.from_lists(self.types)
        columns |= {"starts": np.array(self.starts, np.int64), "ends": np.array(self.ends, np.int64)}
        return Features(
            key=corpus.fingerprint,
            columns=columns,
            example_offsets=offsets_from_sizes(self.counts),
            metadata={
                "token_starts": Ragged.from_lists(self.token_starts, -1),
                "token_ends": Ragged.from_lists(self.token_ends, -1),
            },
            raw_columns=corpus.columns,
        )


def infer_pair_template(tokenizer: Any) -> PairTemplate:
    """Tokenize an example to find out how the tokenizer joins a question and a context."""
    if not getattr(tokenizer, "is_fast", False):
        raise DataError(
            f"question answering needs the position of each token in the text, which {type(tokenizer).__name__} does "
            "not report. Use a model with a fast tokenizer."
        )
    encoding = tokenizer("a", "a")
    sequence_ids, ids = encoding.sequence_ids(0), encoding["input_ids"]
    question = [i for i, sequence in enumerate(sequence_ids) if sequence == 0]
    context = [i for i, sequence in enumerate(sequence_ids) if sequence == 1]
    if not question or not context or question[0] > context[0]:
        raise DataError(f"{type(tokenizer).__name__} does not put the question before the context. Use another model.")
    token_types = encoding.get("token_type_ids")
    types = None
    if token_types is not None and any(token_types):
        types = (token_types[question[0]], token_types[context[0]])
    return PairTemplate(
        before=ids[: question[0]],
        between=ids[question[-1] + 1 : context[0]],
        after=ids[context[-1] + 1 :],
        types=types,
    )


def _first_answer_span(corpus: Corpus, row: int) -> tuple[int, int] | None:
    """Return the character span of the first answer, which is the training target."""
    answers = corpus.column("answers")[row]
    if not answers:
        return None
    text, start = answers[0], int(corpus.column("starts")[row][0])
    if corpus.column("context")[row][start : start + len(text)] != text:
        raise DataError(
            f"{corpus.name}, row {row}: answer '{text[:40]}' is not at character {start} of its context. "
            "Fix the offset, or remove the row."
        )
    return start, start + len(text)


def qa(
    corpus: Corpus,
    stride: int = 128,
    max_question_tokens: int = 64,
    max_answer_tokens: int = 30,
    n_best: int = 20,
    null_threshold: float = 0.0,
) -> SpanExtraction:
    """Find the answer to a question in a context. Metrics: exact match and F1, as in SQuAD."""
    task = SpanExtraction(
        stride=stride,
        max_question_tokens=max_question_tokens,
        max_answer_tokens=max_answer_tokens,
        n_best=n_best,
        null_threshold=null_threshold,
        has_unanswerable=any(not answers for answers in corpus.column("answers")),
    )
    for name in ("stride", "max_question_tokens", "max_answer_tokens", "n_best"):
        if getattr(task, name) < 1:
            raise ConfigError(f"task.{name} is {getattr(task, name)}; it must be at least 1.")
    return task
