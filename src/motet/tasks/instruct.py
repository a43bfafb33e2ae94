"""Instruction tuning: a causal model reads a prompt and learns to write its completion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from motet.core.errors import ConfigError, DataError
from motet.datasets.corpus import Corpus
from motet.learning.data.chat_format import ChatFormat, TemplateName, Turn, describe_row, has_chat_template
from motet.learning.data.features import IGNORE_INDEX, Examples, Features, Ragged
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.modules.position_embeddings import check_positions
from motet.learning.objectives.choice_likelihood import CompletionsAndChoices
from motet.learning.objectives.completion import CompletionCrossEntropy, GeneratedCompletions
from motet.tasks.answer_metrics import exact_matches, rouge_l
from motet.tasks.metric_statistics import with_statistics
from motet.tasks.task import Task
from motet.tasks.tokenization import decode_generated

Scoring = Literal["exact_match", "rougeL", "by_row"]
MAX_CLOSED_ANSWERS = 20  # with at most this number of different completions, the answer is one of few
METRICS: dict[Scoring, tuple[str, ...]] = {
    "exact_match": ("exact_match", "loss"),
    "rougeL": ("rougeL", "loss"),
    "by_row": ("score", "exact_match", "rougeL", "loss"),
}
_DETAILS = {
    "score": "exact match where the answer is one of few, ROUGE-L elsewhere",
    "exact_match": "lowercase, without punctuation, first line",
    "choice_accuracy": "the most likely of the row's choices, by the sum of its tokens' log-likelihoods",
    "rougeL": "rouge-score; Unicode words, single letters in scripts without spaces; Porter stemmer",
}


@dataclass(frozen=True)
class Instruct(Task):
    """Training on completions alone, evaluation by greedy generation.

    `scoring` says how an answer is scored. With `by_row`, rows with `closed` (or with `choices`) are scored by exact
    match and the others by ROUGE-L; `score` is the mean over all rows. With `has_choices`, `choice_accuracy` is the share
    of rows in which the right one of the `choices` is the most likely.
    """

    template: TemplateName = "auto"
    template_options: tuple[tuple[str, Any], ...] = ()
    scoring: Scoring = "rougeL"
    max_new_tokens: int = 64
    has_choices: bool = False
    labels: tuple[str, ...] = ()
    name: str = "instruct"
    objective: CompletionCrossEntropy = CompletionCrossEntropy()

    has_samples: ClassVar[bool] = True

    @property
    def readout(self) -> GeneratedCompletions | CompletionsAndChoices:
        return (CompletionsAndChoices if self.has_choices else GeneratedCompletions)(self.max_new_tokens)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return (*METRICS[self.scoring], *(("choice_accuracy",) if self.has_choices else ()))

    @property
    def primary_metric(self) -> str:
        return self.metric_names[0]

    @property
    def partial_metrics(self) -> tuple[str, ...]:
        by_row = ("exact_match", "rougeL") if self.scoring == "by_row" else ()
        return (*by_row, *(("choice_accuracy",) if self.has_choices else ()))

    @property
    def metric_details(self) -> dict[str, str]:
        return {name: _DETAILS[name] for name in self.metric_names if name in _DETAILS}

    def build_features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        chat = make_chat_format(model, self.template, self.template_options)
        prompts = chat.tokenize_prompts(corpus.name, iterate_conversations(corpus))
        completions = chat.tokenize_completions(corpus.column("completion"))
        check_completions_fit(corpus.name, completions, chat, max_tokens)
        choices = self._tokenize_choices(chat, corpus, max_tokens)
        answers = zip(completions, choices, strict=True)
        longest = [max(len(completion), *map(len, options), 0) for completion, options in answers]
        truncated = [chat.truncate(prompt, max_tokens - n) for prompt, n in zip(prompts, longest, strict=True)]
        texts = [[*prompt.tokens, *completion] for prompt, completion in zip(truncated, completions, strict=True)]
        return Features(
            key=corpus.fingerprint,
            columns={
                "input_ids": Ragged.from_lists(texts, model.tokenizer.pad_token_id),
                "labels": Ragged.from_lists(completions, IGNORE_INDEX),
                "completion_start": np.array([len(prompt.tokens) for prompt in truncated], np.int64),
                **(_choice_columns(choices) if self.has_choices else {}),
            },
            metadata={"removed_tokens": np.array([prompt.removed for prompt in truncated], np.int64)},
            raw_columns=corpus.columns,
            tokenizer=model.tokenizer,
        )

    def check_features(self, features: Features, model: Model) -> None:
        longest = int(np.asarray(features.columns["completion_start"]).max(initial=0))
        check_positions(
            model.module,
            longest + self.max_new_tokens - 1,  # the last token is not read again
            f"the longest prompt has {longest} tokens and task.max_new_tokens is {self.max_new_tokens}",
            "Lower model.max_tokens or task.max_new_tokens.",
        )

    def describe_features(self, features: Features, model: Model) -> list[str]:
        return describe_prompts(features, model, self.template)

    def chat_template(self, model: Model) -> str | None:
        return make_chat_format(model, self.template, self.template_options).template

    def compute_metrics(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        scores, is_closed = self._score(predictions, examples)
        count = max(1, int(predictions["count"].sum()))
        metrics = {"loss": float(predictions["loss"].double().sum()) / count}
        subsets = {"score": np.ones_like(is_closed), "exact_match": is_closed, "rougeL": ~is_closed}
        for name, rows in subsets.items():
            if name in self.metric_names and rows.any():
                metrics[name] = float(scores[rows].mean())
        if self.has_choices and (is_right := _find_right_choices(predictions, examples)):
            metrics["choice_accuracy"] = float(np.mean(is_right))
        return metrics

    def score_examples(self, predictions: Predictions, examples: Examples) -> np.ndarray:
        """Return the score of each answer; then closed and exact match, open and ROUGE-L."""
        scores, is_closed = self._score(predictions, examples)
        if self.scoring != "by_row":
            return scores
        statistics = np.stack([is_closed, scores * is_closed, ~is_closed, scores * ~is_closed], axis=1)
        return with_statistics(scores, statistics)

    def read_samples(self, predictions: Predictions, examples: Examples) -> list[dict[str, Any]]:
        generated, references = decode_answers(predictions, examples)
        prompts = examples.features.raw_columns["prompt"]
        texts = (prompts[int(row)] for row in examples.rows)
        return [
            {"prompt": p if isinstance(p, str) else "\n\n".join(p), "reference": reference, "generated": text}
            for p, reference, text in zip(texts, references, generated, strict=True)
        ]

    def _tokenize_choices(self, chat: ChatFormat, corpus: Corpus, max_tokens: int) -> list[list[list[int]]]:
        """Return the tokens of each row's choices; without choices, an empty list for each row."""
        if not self.has_choices or "choices" not in corpus.columns:
            return [[]] * len(corpus)
        rows = [chat.tokenize_completions(options) for options in corpus.column("choices")]
        longest: list[list[int]] = [max(options, key=len, default=[]) for options in rows]
        check_completions_fit(corpus.name, longest, chat, max_tokens, "choices")
        return rows

    def _score(self, predictions: Predictions, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
        """Return the score of each answer, and True where it is scored by exact match."""
        generated, references = decode_answers(predictions, examples)
        is_closed = self._find_closed(examples)
        scores = np.zeros(len(generated), np.float32)
        for rows, metric in ((is_closed, exact_matches), (~is_closed, rouge_l)):
            indices = np.flatnonzero(rows)
            scores[indices] = metric([generated[i] for i in indices], [references[i] for i in indices])
        return scores, is_closed

    def _find_closed(self, examples: Examples) -> np.ndarray:
        if self.scoring != "by_row":
            return np.full(len(examples), self.scoring == "exact_match")
        columns = examples.features.raw_columns
        flags: Sequence[Any] = columns.get("closed", columns.get("choices", ()))
        return np.array([bool(flags) and bool(flags[int(row)]) for row in examples.rows], bool)


def _choice_columns(rows: Sequence[Sequence[Sequence[int]]]) -> dict[str, Ragged]:
    return {
        "choice_ids": Ragged.from_lists([[token for option in options for token in option] for options in rows]),
        "choice_lengths": Ragged.from_lists([[len(option) for option in options] for options in rows]),
    }


def _find_right_choices(predictions: Predictions, examples: Examples) -> list[bool]:
    """Return for each row with choices whether the most likely one is the completion."""
    columns = examples.features.raw_columns
    return [
        columns["choices"][int(row)][choice] == str(columns["completion"][int(row)]).strip()
        for row, choice in zip(examples.rows, predictions["choice"].tolist(), strict=True)
        if choice >= 0
    ]


def decode_answers(predictions: Predictions, examples: Examples) -> tuple[list[str], list[str]]:
    """Return the generated answers and the references."""
    references = examples.features.raw_columns["completion"]
    return decode_generated(predictions, examples), [str(references[int(row)]).strip() for row in examples.rows]


def make_chat_format(model: Model, template: TemplateName, options: Sequence[tuple[str, Any]]) -> ChatFormat:
    """Return how the prompts of a task are written for a model."""
    name = model.key.rpartition("-")[0]
    return ChatFormat(model.tokenizer, template, name, model.virtual_tokens, dict(options))


def iterate_conversations(corpus: Corpus) -> Iterator[list[Turn]]:
    """Yield the turns of each prompt."""
    roles = corpus.columns.get("roles")
    for row, prompt in enumerate(corpus.column("prompt")):
        if isinstance(prompt, str):
            yield [Turn("user", prompt)]
        else:
            yield [Turn(role, text) for role, text in zip(roles[row] if roles else (), prompt, strict=True)]


def check_completions_fit(
    name: str, completions: Sequence[Sequence[int]], chat: ChatFormat, max_tokens: int, column: str = "completion"
) -> None:
    """Raise an error if a completion leaves no position for its prompt: completions are never cut."""
    lengths = np.array([len(completion) for completion in completions])
    virtual = len(chat.virtual_tokens)
    too_long = np.flatnonzero(lengths + virtual >= max_tokens)
    if len(too_long):
        trained = f" after {virtual} virtual tokens" if virtual else ""
        raise DataError(
            f"{name}, {describe_row(too_long[0])}: the {column} text has {lengths[too_long[0]]} tokens{trained}, but "
            f"model.max_tokens is {max_tokens}, and answers are never cut ({len(too_long)} of {len(lengths)} rows). Set "
            f"model.max_tokens to more than {lengths.max() + virtual}, or remove these rows."
        )


def describe_prompts(features: Features, model: Model, template: TemplateName) -> list[str]:
    notes = []
    if template == "auto" and not has_chat_template(model.tokenizer):
        notes.append("the tokenizer has no chat template; prompts have Alpaca's layout (task.template=alpaca)")
    removed = features.metadata["removed_tokens"]
    count = int(np.count_nonzero(np.asarray(removed)))
    if count:
        notes.append(
            f"{count:,} of {len(features):,} prompts do not fit into model.max_tokens and lose their beginning "
            f"({int(np.asarray(removed).sum()):,} tokens); completions are whole"
        )
    return notes


def instruct(
    corpus: Corpus,
    template: TemplateName = "auto",
    template_options: Mapping[str, Any] | None = None,
    scoring: Scoring | None = None,
    max_new_tokens: int = 64,
) -> Instruct:
    """Learn to answer prompts. Metrics: exact match for closed questions, ROUGE-L for others, loss.

    Rows with `choices` also get choice accuracy: which choice is the most likely.
    """
    if max_new_tokens < 1:
        raise ConfigError(f"task.max_new_tokens is {max_new_tokens}; it must be at least 1.")
    return Instruct(
        template=template,
        template_options=tuple((template_options or {}).items()),
        scoring=scoring or _infer_scoring(corpus),
        max_new_tokens=max_new_tokens,
        has_choices=any(len(options) > 1 for options in corpus.columns.get("choices", ())),
    )


def _infer_scoring(corpus: Corpus) -> Scoring:
    """Answers are scored by row if the corpus says which are closed, and by exact match if there are few."""
    flags = corpus.columns.get("closed", corpus.columns.get("choices"))
    if flags is not None:
        kinds = {bool(flag) for flag in flags}
        return "by_row" if len(kinds) > 1 else "exact_match" if kinds == {True} else "rougeL"
    answers = {str(answer).strip() for answer in corpus.column("completion")[: corpus.num_train]}
    return "exact_match" if len(answers) <= min(MAX_CLOSED_ANSWERS, corpus.num_train // 2) else "rougeL"
