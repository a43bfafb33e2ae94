"""What opinions are about: public texts, or where words are tagged the words of public texts.

All participants have the same public texts in the same order, each cut into tokens by a tokenizer of its own. Texts are told
alike by their place. So are words: opinions are [words, classes], all words of the first text, then of the second; what a model
thinks of a word it says on the word's first sub-token, where the word's tag stands too. A model that reads only the beginning
of a long text has no opinion of the words it does not see: `seen` is 1 for a word and 0 where nothing is said of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.learning.data.features import Examples, Ragged
from motet.learning.jobs import Predictions
from motet.learning.objectives.readouts import FlatTokenLogits, LogitsOnly, Readout


class Public(Protocol):
    """`count` opinions on `examples`, for all participants the same; `readout` is how a model is asked for them."""

    @property
    def examples(self) -> Examples: ...
    @property
    def classes(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def readout(self) -> Readout: ...
    def opinions(self, readings: Predictions) -> Params:
        """`logits` [count, classes] and, where not everything may be seen, `seen` [count]."""

    def blank(self) -> Params:
        """Opinions of the right shape that say nothing."""

    def lessons(self, advice: Params) -> Examples:
        """The public texts with what a teacher thinks of them."""


@dataclass(frozen=True, eq=False)
class Texts:
    """One opinion a text."""

    examples: Examples
    classes: int
    readout: LogitsOnly = LogitsOnly()

    @property
    def count(self) -> int:
        return len(self.examples)

    def opinions(self, readings: Predictions) -> Params:
        return Params.from_tensors({"logits": readings["logits"]}) if self.count else self.blank()

    def blank(self) -> Params:
        return Params.from_tensors({"logits": torch.zeros(self.count, self.classes)})

    def lessons(self, advice: Params) -> Examples:
        return Examples(self.examples.features, self.examples.rows, {"teacher_logits": advice["logits"].float()})


@dataclass(frozen=True, eq=False)
class WordsOfTexts:
    """One opinion a word, however many words a text has."""

    examples: Examples
    classes: int
    readout: FlatTokenLogits = FlatTokenLogits()

    @cached_property
    def ends(self) -> np.ndarray:
        """Where the words of each text end among all of them."""
        words = self.examples.features.raw_columns["words"]
        return np.cumsum([len(words[int(row)]) for row in self.examples.rows], dtype=np.int64)

    @property
    def count(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @cached_property
    def places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of every word that this model sees: the text, the token in it that the word begins with, and the word's number."""
        column = self.examples.features.metadata["word_ids"]
        if not isinstance(column, Ragged):
            raise TypeError("the words of tokens are ragged")
        table, real = column.pad_rows(self.examples.rows)
        before = np.concatenate([np.full((len(table), 1), -1), table[:, :-1]], axis=1)
        text, token = np.nonzero(real & (table >= 0) & (table != before))
        first = np.concatenate([[0], self.ends[:-1]])
        return torch.from_numpy(text), torch.from_numpy(token), torch.from_numpy(first[text] + table[text, token])

    def opinions(self, readings: Predictions) -> Params:
        text, token, word = self.places
        found = self.blank()
        if len(word):
            found["logits"][word] = readings["logits"].view(len(self.examples), -1, self.classes)[text, token]
            found["seen"][word] = 1
        return found

    def blank(self) -> Params:
        return Params.from_tensors({"logits": torch.zeros(self.count, self.classes), "seen": torch.zeros(self.count)})

    def lessons(self, advice: Params) -> Examples:
        """`taught` marks the tokens on which there is something to learn."""
        text, token, word = self.places
        width = 1 + (int(token.max()) if len(token) else 0)
        teacher = torch.zeros(len(self.examples), width, self.classes)
        taught = torch.zeros(len(self.examples), width)
        teacher[text, token] = advice["logits"].float()[word]
        taught[text, token] = (advice["seen"].float()[word] > 0.5).float()
        return Examples(self.examples.features, self.examples.rows, {"teacher_logits": teacher, "teacher_mask": taught})


KINDS: dict[str, type[Texts] | type[WordsOfTexts]] = {"classification": Texts, "tagging": WordsOfTexts}


def public_of(ctx: Any) -> Public:
    site = ctx.participant
    if "public" not in site.splits:
        raise ConfigError(
            "federated distillation needs public texts, and this federation has none; set data.public_share=0.2, or use a "
            "partition with a public part (multi_domain)."
        )
    if site.task.name not in KINDS:
        raise ConfigError(
            f"federated distillation is of the scores of classes (tasks {' and '.join(KINDS)}), not of {site.task.name}."
        )
    return KINDS[site.task.name](site.split("public"), len(site.task.labels))
