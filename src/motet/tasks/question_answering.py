"""Extractive question answering: where in the passage the answer stands.

Long passages are cut into windows. SQuAD's convention: `stride` is how far one window begins after the one before it; a window
that does not hold the answer, and a question that has none, point at the first token.
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
from motet.tasks.squad_metrics import exact_match, token_f1
from motet.tasks.sufficient_statistics import with_statistics
from motet.tasks.tokenization import BATCH, offsets_from_sizes


class PairTemplate(NamedTuple):
    """How a tokenizer puts two texts together: what stands before, between and behind them, and their types."""

    before: list[int]
    between: list[int]
    behind: list[int]
    types: tuple[int, int] | None


@dataclass(frozen=True)
class SpanExtraction:
    stride: int = 128
    question_tokens: int = 64
    answer_tokens: int = 30
    n_best: int = 20
    null_threshold: float = 0.0
    unanswerable: bool = False
    labels: tuple[str, ...] = ("start", "end")
    name: str = "qa"
    primary_metric: str = "f1"
    metric_names: tuple[str, ...] = ("f1", "em", "f1_pairs", "em_pairs", "loss")
    objective: SpanCrossEntropy = SpanCrossEntropy()
    readout: SpanLogits = SpanLogits()

    def features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        tokenizer = model.tokenizer
        frame = infer_pair_template(tokenizer)
        room = max_tokens - sum(map(len, frame[:3])) - self.question_tokens
        if room < 8:
            raise ConfigError(
                f"model.max_tokens is {max_tokens}; with task.question_tokens={self.question_tokens} that leaves {room} for "
                "the passage. Raise the one or lower the other."
            )
        windows = _Windows(frame, max_tokens, self.stride)
        for at in range(0, len(corpus), BATCH):
            some = slice(at, at + BATCH)
            questions = tokenizer(list(corpus.column("question")[some]), add_special_tokens=False)["input_ids"]
            how = {
                "add_special_tokens": False,
                "return_offsets_mapping": True,
                "verbose": False,
            }  # long ones are cut below
            coded = tokenizer(list(corpus.column("context")[some]), **how)
            answers = zip(corpus.column("answers")[some], corpus.column("starts")[some], strict=True)
            parts = zip(questions, coded["input_ids"], coded["offset_mapping"], answers, strict=True)
            for row, (question, passage, places, (texts, starts)) in enumerate(parts):
                answer = _first_answer(corpus, at + row, texts, starts)
                windows.add(question[: self.question_tokens], passage, places, answer)
        return windows.features(corpus, tokenizer.pad_token_id)

    def texts(self, corpus: Corpus) -> Sequence[str]:
        """The question with its answer, as FedNLP tells questions alike; passages are shared by many."""
        columns = zip(corpus.column("question"), corpus.column("answers"), strict=True)
        return [f"{question} {answers[0] if answers else ''}" for question, answers in columns]

    def example_scores(self, readings: Predictions, examples: Examples) -> np.ndarray:
        """F1 with the best of the answers, a question; with tallies."""
        gold = examples.features.raw_columns["answers"]
        said = [(text, list(gold[example]) or [""]) for example, text in self.answers(readings, examples).items()]
        scores, right = (
            [max(score(text, a) for a in answers) for text, answers in said] for score in (token_f1, exact_match)
        )
        return with_statistics(np.array(scores), np.array(right))

    def metrics(self, readings: Predictions, examples: Examples) -> dict[str, float]:
        """EM and F1 as SQuAD's evaluation (the best of the answers), and averaged over pairs of question and answer."""
        said = self.answers(readings, examples)
        gold = examples.features.raw_columns["answers"]
        best: dict[str, list[float]] = {"f1": [], "em": []}
        pairs: dict[str, list[float]] = {"f1": [], "em": []}
        for example, text in said.items():
            answers = list(gold[example]) or [""]
            for name, score in (("f1", token_f1), ("em", exact_match)):
                each = [score(text, answer) for answer in answers]
                best[name].append(max(each))
                pairs[name] += each
        means = {name: float(np.mean(v)) if v else 0.0 for name, v in best.items()}
        means |= {f"{name}_pairs": float(np.mean(v)) if v else 0.0 for name, v in pairs.items()}
        return {**means, "loss": float(readings["loss"].double().mean())}

    def answers(self, readings: Predictions, examples: Examples) -> dict[int, str]:
        """The likeliest span of each example's windows; nothing, where that is likelier and there are such questions."""
        starts, ends = readings["start"].numpy(), readings["end"].numpy()
        best: dict[int, tuple[float, str]] = {}
        null: dict[int, float] = {}
        features = examples.features
        for place, row in enumerate(examples.rows):
            example = int(features.example_ids(np.array([row]))[0])
            score, text = self._window(features, int(row), example, starts[place], ends[place])
            if example not in best or score > best[example][0]:
                best[example] = (score, text)
            null[example] = min(null.get(example, np.inf), float(starts[place][0] + ends[place][0]))
        if not self.unanswerable:
            return {e: text for e, (_, text) in best.items()}
        return {e: "" if null[e] - score > self.null_threshold else text for e, (score, text) in best.items()}

    def _window(
        self, features: Features, row: int, example: int, start: np.ndarray, end: np.ndarray
    ) -> tuple[float, str]:
        """n-best: the likeliest beginnings with the likeliest ends, inside the passage, in order and not too long."""
        firsts, lasts = features.metadata["first"], features.metadata["last"]
        assert isinstance(firsts, Ragged)
        assert isinstance(lasts, Ragged)
        inside = np.flatnonzero(firsts[row] >= 0)
        if not len(inside):
            return -np.inf, ""
        heads = inside[np.argsort(-start[inside], kind="stable")[: self.n_best]]
        tails = inside[np.argsort(-end[inside], kind="stable")[: self.n_best]]
        scores = start[heads][:, None] + end[tails][None]
        length = tails[None] - heads[:, None]
        scores = np.where((length >= 0) & (length < self.answer_tokens), scores, -np.inf)
        head, tail = np.unravel_index(int(scores.argmax()), scores.shape)
        context = features.raw_columns["context"][example]
        text = context[firsts[row][heads[head]] : lasts[row][tails[tail]]]
        score = float(scores[head, tail])
        return score, text if np.isfinite(score) else ""


class _Windows:
    """Windows as they are cut, one list a column."""

    def __init__(self, frame: PairTemplate, max_tokens: int, stride: int) -> None:
        self.frame, self.max_tokens, self.stride = frame, max_tokens, stride
        self.ids: list[list[int]] = []
        self.types: list[list[int]] = []
        self.first: list[list[int]] = []  # where each token begins in the passage; −1 if it is not of the passage
        self.last: list[list[int]] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.counts: list[int] = []

    def add(
        self, question: list[int], passage: list[int], places: Sequence[Any], answer: tuple[int, int] | None
    ) -> None:
        before, between, behind, types = self.frame
        lead = [*before, *question, *between]
        room = self.max_tokens - len(lead) - len(behind)
        count = 0
        for at in range(0, max(1, len(passage)), self.stride):
            some = slice(at, at + room)
            self.ids.append([*lead, *passage[some], *behind])
            outside, after = [-1] * len(lead), [-1] * len(behind)
            self.first.append([*outside, *(p[0] for p in places[some]), *after])
            self.last.append([*outside, *(p[1] for p in places[some]), *after])
            if types is not None:
                self.types.append([types[0]] * len(lead) + [types[1]] * (len(self.ids[-1]) - len(lead)))
            start, end = self._span(answer)
            self.starts.append(start)
            self.ends.append(end)
            count += 1
            if at + room >= len(passage):
                break
        self.counts.append(count)

    def _span(self, answer: tuple[int, int] | None) -> tuple[int, int]:
        """The answer's tokens in the window just added, or the first token twice."""
        first, last = np.asarray(self.first[-1]), np.asarray(self.last[-1])
        if answer is None:
            return 0, 0
        inside = np.flatnonzero((first >= 0) & (last > answer[0]) & (first < answer[1]))
        if not len(inside) or first[inside[0]] > answer[0] or last[inside[-1]] < answer[1]:
            return 0, 0
        return int(inside[0]), int(inside[-1])

    def features(self, corpus: Corpus, pad: int) -> Features:
        columns: dict[str, Ragged | np.ndarray] = {"input_ids": Ragged.from_lists(self.ids, pad)}
        if self.types:
            columns["token_type_ids"] = Ragged.from_lists(self.types)
        columns |= {"starts": np.array(self.starts, np.int64), "ends": np.array(self.ends, np.int64)}
        side = {"first": Ragged.from_lists(self.first, -1), "last": Ragged.from_lists(self.last, -1)}
        return Features(corpus.fingerprint, columns, offsets_from_sizes(self.counts), side, corpus.columns)


def infer_pair_template(tokenizer: Any) -> PairTemplate:
    """Read off an example how the tokenizer joins a question and a passage."""
    if not getattr(tokenizer, "is_fast", False):
        raise DataError(
            f"question answering needs to know where tokens stand in the text; {type(tokenizer).__name__} cannot tell."
        )
    coded = tokenizer("a", "a")
    owners, ids = coded.sequence_ids(0), coded["input_ids"]
    question = [i for i, o in enumerate(owners) if o == 0]
    passage = [i for i, o in enumerate(owners) if o == 1]
    if not question or not passage or question[0] > passage[0]:
        raise DataError(
            f"{type(tokenizer).__name__} does not put a question before its passage; another model is needed."
        )
    kinds = coded.get("token_type_ids")
    types = (kinds[question[0]], kinds[passage[0]]) if kinds is not None and any(kinds) else None
    return PairTemplate(ids[: question[0]], ids[question[-1] + 1 : passage[0]], ids[passage[-1] + 1 :], types)


def _first_answer(corpus: Corpus, row: int, texts: Sequence[str], starts: Sequence[int]) -> tuple[int, int] | None:
    if not texts:
        return None
    start, text = int(starts[0]), texts[0]
    if corpus.column("context")[row][start : start + len(text)] != text:
        raise DataError(
            f"{corpus.name}, row {row}: answer '{text[:40]}' does not stand at character {start} of its passage; "
            "mend the offset, or drop the row."
        )
    return start, start + len(text)


def qa(
    corpus: Corpus,
    stride: int = 128,
    question_tokens: int = 64,
    answer_tokens: int = 30,
    n_best: int = 20,
    null_threshold: float = 0.0,
) -> SpanExtraction:
    """A passage and a question, and where in the passage the answer stands: EM and F1 as SQuAD defines them."""
    for name, value in (
        ("stride", stride),
        ("question_tokens", question_tokens),
        ("answer_tokens", answer_tokens),
        ("n_best", n_best),
    ):
        if value < 1:
            raise ConfigError(f"task.{name} is {value}; it must be at least 1.")
    none = any(not answers for answers in corpus.column("answers"))
    return SpanExtraction(stride, question_tokens, answer_tokens, n_best, null_threshold, none)
