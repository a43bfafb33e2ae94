"""Public data for federated distillation: one row of logits per public text or, in tagging, per word of a public text.

All participants have the same public texts in the same order, but their tokenizers may differ. So texts and words are
identified by their index. In tagging, logits have shape [words, classes], with all words of the first text first, then
of the second, and so on. A word gets the logits of its first subtoken, which also carries its tag. A model that
truncates long texts does not see all words: `seen` is 1 for a word that it sees and 0 otherwise.
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
from motet.learning.data.features import Examples
from motet.learning.jobs import Predictions
from motet.learning.objectives.readouts import FlatTokenLogits, LogitsOnly, Readout


class PublicData(Protocol):
    """The public examples of one participant. `num_rows` is the number of rows of logits, the same for everyone."""

    @property
    def examples(self) -> Examples: ...
    @property
    def num_classes(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def readout(self) -> Readout: ...
    def to_logits(self, predictions: Predictions) -> Params:
        """Return `logits` [num_rows, num_classes] and, in tagging, `seen` [num_rows]."""

    def blank_logits(self) -> Params:
        """Return zeros in the shape of `to_logits`."""

    def with_teacher(self, logits: Params) -> Examples:
        """Return the public examples with a teacher's logits as extra columns."""


@dataclass(frozen=True, eq=False)
class PublicTexts:
    """One row of logits per text."""

    examples: Examples
    num_classes: int
    readout: LogitsOnly = LogitsOnly()

    @property
    def num_rows(self) -> int:
        return len(self.examples)

    def to_logits(self, predictions: Predictions) -> Params:
        return Params.from_tensors({"logits": predictions["logits"]}) if self.num_rows else self.blank_logits()

    def blank_logits(self) -> Params:
        return Params.from_tensors({"logits": torch.zeros(self.num_rows, self.num_classes)})

    def with_teacher(self, logits: Params) -> Examples:
        return Examples(self.examples.features, self.examples.rows, {"teacher_logits": logits["logits"].float()})


@dataclass(frozen=True, eq=False)
class PublicWords:
    """One row of logits per word."""

    examples: Examples
    num_classes: int
    readout: FlatTokenLogits = FlatTokenLogits()

    @cached_property
    def text_ends(self) -> np.ndarray:
        """The index after the last word of each text, counting the words of all texts."""
        words = self.examples.features.raw_columns["words"]
        return np.cumsum([len(words[int(row)]) for row in self.examples.rows], dtype=np.int64)

    @property
    def num_rows(self) -> int:
        return int(self.text_ends[-1]) if len(self.text_ends) else 0

    @cached_property
    def word_positions(self) -> tuple[Tensor, Tensor, Tensor]:
        """For each word that this model sees: the index of its text, of its first token in the text, and of the word."""
        words, is_token = self.examples.features.ragged("word_ids").pad_rows(self.examples.rows)
        previous = np.concatenate([np.full((len(words), 1), -1), words[:, :-1]], axis=1)
        text, token = np.nonzero(is_token & (words >= 0) & (words != previous))
        text_starts = np.concatenate([[0], self.text_ends[:-1]])
        return torch.from_numpy(text), torch.from_numpy(token), torch.from_numpy(text_starts[text] + words[text, token])

    def to_logits(self, predictions: Predictions) -> Params:
        text, token, word = self.word_positions
        logits = self.blank_logits()
        if len(word):
            logits["logits"][word] = predictions["logits"].view(len(self.examples), -1, self.num_classes)[text, token]
            logits["seen"][word] = 1
        return logits

    def blank_logits(self) -> Params:
        return Params.from_tensors(
            {"logits": torch.zeros(self.num_rows, self.num_classes), "seen": torch.zeros(self.num_rows)}
        )

    def with_teacher(self, logits: Params) -> Examples:
        """The mask selects the tokens for which the teacher has logits."""
        text, token, word = self.word_positions
        width = 1 + (int(token.max()) if len(token) else 0)
        teacher = torch.zeros(len(self.examples), width, self.num_classes)
        mask = torch.zeros(len(self.examples), width)
        teacher[text, token] = logits["logits"].float()[word]
        mask[text, token] = (logits["seen"].float()[word] > 0.5).float()
        return Examples(self.examples.features, self.examples.rows, {"teacher_logits": teacher, "teacher_mask": mask})


PUBLIC_DATA: dict[str, type[PublicTexts] | type[PublicWords]] = {"classification": PublicTexts, "tagging": PublicWords}


def get_public_data(ctx: Any) -> PublicData:
    """Return a participant's public data, or raise an error if there is none or the task has no class logits."""
    participant = ctx.participant
    if "public" not in participant.splits:
        raise ConfigError(
            "federated distillation needs public texts, but this federation has none; "
            "set data.public_share=0.2, or use a partition with public data (multi_domain)."
        )
    if participant.task.name not in PUBLIC_DATA:
        raise ConfigError(
            f"federated distillation needs class logits, but the task is {participant.task.name}; "
            f"use a task of type {' or '.join(PUBLIC_DATA)}."
        )
    return PUBLIC_DATA[participant.task.name](participant.split("public"), len(participant.task.labels))
