"""A tag for every word: names of people and places. Scored by whole entities, as seqeval does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.learning.data.features import IGNORE_INDEX, Examples, Features, Ragged
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import TokenPredictions
from motet.learning.objectives.supervised import TokenCrossEntropy
from motet.tasks.sufficient_statistics import with_statistics
from motet.tasks.tokenization import BATCH, pad_empty_rows


@dataclass(frozen=True)
class Tagging:
    """A word's tag stands on its first sub-token; the others, and special tokens, have none."""

    labels: tuple[str, ...]
    attention_mask: bool = True
    name: str = "tagging"
    primary_metric: str = "f1"
    metric_names: tuple[str, ...] = ("f1", "precision", "recall", "accuracy", "loss")
    objective: TokenCrossEntropy = TokenCrossEntropy()
    readout: TokenPredictions = TokenPredictions()

    def features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        tokenizer = model.tokenizer
        if not getattr(tokenizer, "is_fast", False):
            raise DataError(
                f"tagging needs to know which token is of which word; {type(tokenizer).__name__} cannot tell."
            )
        known = {tag: i for i, tag in enumerate(self.labels)}
        ids: list[list[int]] = []
        tags: list[list[int]] = []
        places: list[list[int]] = []
        words = corpus.column("words")
        padding = False if self.attention_mask else "max_length"
        for at in range(0, len(words), BATCH):
            some = [list(w) for w in words[at : at + BATCH]]
            coded = tokenizer(some, is_split_into_words=True, truncation=True, max_length=max_tokens, padding=padding)
            ids += coded["input_ids"]
            for i in range(len(some)):
                tags.append(self._tags(corpus, at + i, coded.word_ids(i), known))
                places.append([-1 if w is None else w for w in coded.word_ids(i)] or [-1])
        columns = {
            "input_ids": pad_empty_rows(ids, tokenizer.pad_token_id),
            "labels": Ragged.from_lists(tags, IGNORE_INDEX),
        }
        return Features(
            corpus.fingerprint, columns, metadata={"word": Ragged.from_lists(places, -1)}, raw_columns=corpus.columns
        )

    def _tags(self, corpus: Corpus, row: int, words: Sequence[int | None], known: dict[str, int]) -> list[int]:
        given = corpus.column("tags")[row]
        found, before = [], None
        for word in words:
            first = word is not None and word != before
            if first and given[word] not in known:
                raise DataError(
                    f"{corpus.name}, row {row}: tag '{given[word]}' does not occur in training; mend or drop the row."
                )
            found.append(known[given[word]] if first else IGNORE_INDEX)
            before = word
        return found or [IGNORE_INDEX]

    def texts(self, corpus: Corpus) -> Sequence[str]:
        return [" ".join(words) for words in corpus.column("words")]

    def metrics(self, readings: Predictions, examples: Examples) -> dict[str, float]:
        """Words that were cut off count as untagged: a model that does not see an entity does not find it."""
        from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score

        truth, said = self.tags(readings, examples)
        count = int(readings["count"].sum())
        return {
            "f1": float(f1_score(truth, said, zero_division=0)),
            "precision": float(precision_score(truth, said, zero_division=0)),
            "recall": float(recall_score(truth, said, zero_division=0)),
            "accuracy": float(accuracy_score(truth, said)),
            "loss": float(readings["loss"].double().sum()) / max(1, count),
        }

    def example_scores(self, readings: Predictions, examples: Examples) -> np.ndarray:
        """F1 of each sentence's entities; a sentence that has none, and in which none is found, is right. With tallies."""
        from seqeval.metrics.sequence_labeling import get_entities

        scores, counts = [], []
        for truth, said in zip(*self.tags(readings, examples), strict=True):
            gold, mine = set(get_entities(truth)), set(get_entities(said))
            scores.append(2 * len(gold & mine) / (len(gold) + len(mine)) if gold or mine else 1.0)
            counts.append((len(gold & mine), len(mine), len(gold)))
        return with_statistics(np.array(scores), np.array(counts))

    def tags(self, readings: Predictions, examples: Examples) -> tuple[list[list[str]], list[list[str]]]:
        """The true and the predicted tags of every sentence."""
        table, words = readings["predictions"].numpy(), examples.features.metadata["word"]
        truth, said = [], []
        for place, row in enumerate(examples.rows):
            given = examples.features.raw_columns["tags"][int(row)]
            labelled = table[place][: len(words[row])] != IGNORE_INDEX
            seen = dict(
                zip(words[row][labelled].tolist(), table[place][: len(words[row])][labelled].tolist(), strict=True)
            )
            last = max(seen, default=-1)
            kept = [
                w for w in range(len(given)) if w in seen or w > last
            ]  # a word of no tokens is dropped with its tag
            truth.append([given[w] for w in kept])
            said.append([self.labels[seen[w]] if w in seen else "O" for w in kept])
        return truth, said


def tagging(corpus: Corpus, attention_mask: bool = True) -> Tagging:
    """A tag for every word (B-X, I-X, O): F1, precision and recall of whole entities, as seqeval defines them."""
    tags = {tag for row in corpus.column("tags")[: corpus.num_train] for tag in row}
    for row, (words, given) in enumerate(zip(corpus.column("words"), corpus.column("tags"), strict=True)):
        if len(words) != len(given):
            raise DataError(
                f"{corpus.name}, row {row}: {len(words)} words have {len(given)} tags; each word needs one."
            )
    odd = sorted(t for t in tags if t != "O" and t[:2] not in ("B-", "I-"))
    if odd:
        raise DataError(f"{corpus.name}: '{odd[0]}' is no tag of the form B-X, I-X or O; convert the tags first.")
    both = {f"{side}-{tag[2:]}" for tag in tags if tag != "O" for side in "BI"}  # an entity may be longer elsewhere
    return Tagging(("O", *sorted(both, key=lambda t: (t[2:], t[0]))), attention_mask)


def types_of(tags: Sequence[str]) -> tuple[str, ...]:
    """The types of entity in a sentence, sorted."""
    return tuple(sorted({tag[2:] for tag in tags if tag != "O"}))
