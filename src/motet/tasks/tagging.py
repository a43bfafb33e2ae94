"""Tagging: one tag per word, such as named entities. Scored by whole entities, as in seqeval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.learning.confusion_matrix import NO_ENTITY, Confusion
from motet.learning.data.features import IGNORE_INDEX, Examples, Features, Ragged
from motet.learning.jobs import Predictions
from motet.learning.modules.model import Model
from motet.learning.objectives.readouts import TokenPredictions
from motet.learning.objectives.supervised import TokenCrossEntropy
from motet.tasks.metric_statistics import with_statistics
from motet.tasks.task import Task
from motet.tasks.tokenization import BATCH_SIZE, pad_empty_rows


@dataclass(frozen=True)
class Tagging(Task):
    """The first token of a word is labeled with the word's tag; other tokens are ignored.

    Without `attention_mask`, padding counts as text.
    """

    labels: tuple[str, ...]
    attention_mask: bool = True
    name: str = "tagging"
    primary_metric: str = "f1"
    metric_names: tuple[str, ...] = ("f1", "precision", "recall", "accuracy", "loss")
    objective: TokenCrossEntropy = TokenCrossEntropy()
    readout: TokenPredictions = TokenPredictions()

    def build_features(self, corpus: Corpus, model: Model, max_tokens: int) -> Features:
        tokenizer = model.tokenizer
        if not getattr(tokenizer, "is_fast", False):
            raise DataError(
                f"tagging needs the word of each token, which {type(tokenizer).__name__} does not report. "
                "Use a model with a fast tokenizer."
            )
        label_ids = {tag: i for i, tag in enumerate(self.labels)}
        ids: list[list[int]] = []
        labels: list[list[int]] = []
        word_ids: list[list[int]] = []
        sentences = corpus.column("words")
        padding = False if self.attention_mask else "max_length"
        for start in range(0, len(sentences), BATCH_SIZE):
            batch = [list(words) for words in sentences[start : start + BATCH_SIZE]]
            encoding = tokenizer(
                batch, is_split_into_words=True, truncation=True, max_length=max_tokens, padding=padding
            )
            ids += encoding["input_ids"]
            for i in range(len(batch)):
                words = encoding.word_ids(i)
                labels.append(_align_labels(corpus, start + i, words, label_ids))
                word_ids.append([-1 if word is None else word for word in words] or [-1])
        columns = {
            "input_ids": pad_empty_rows(ids, tokenizer.pad_token_id),
            "labels": Ragged.from_lists(labels, IGNORE_INDEX),
        }
        metadata = {"word_ids": Ragged.from_lists(word_ids, -1)}
        return Features(corpus.fingerprint, columns, metadata=metadata, raw_columns=corpus.columns)

    def compute_metrics(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        """Return the metrics of seqeval; 0 if there are no words. Truncated words count as predicted O."""
        from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score

        true, predicted = self.decode(predictions, examples)
        count = int(predictions["count"].sum())
        return {
            "f1": float(f1_score(true, predicted, zero_division=0)),
            "precision": float(precision_score(true, predicted, zero_division=0)),
            "recall": float(recall_score(true, predicted, zero_division=0)),
            "accuracy": float(accuracy_score(true, predicted)) if any(true) else 0.0,
            "loss": float(predictions["loss"].double().sum()) / max(1, count),
        }

    def count_confusions(self, predictions: Predictions, examples: Examples) -> Confusion:
        """Count entities by their type. An entity without a counterpart at the same words is confused with none."""
        from seqeval.metrics.sequence_labeling import get_entities

        labels = (*dict.fromkeys(label[2:] for label in self.labels if label != "O"), NO_ENTITY)
        ids = {label: i for i, label in enumerate(labels)}
        pairs: list[tuple[int, int]] = []
        for tags in zip(*self.decode(predictions, examples), strict=True):
            true, predicted = ({(start, end): ids[kind] for kind, start, end in get_entities(each)} for each in tags)
            pairs += [(true.get(w, ids[NO_ENTITY]), predicted.get(w, ids[NO_ENTITY])) for w in {**true, **predicted}]
        table = np.array(pairs, np.int64).reshape(-1, 2)
        return Confusion.count(labels, table[:, 0], table[:, 1])

    def score_examples(self, predictions: Predictions, examples: Examples) -> np.ndarray:
        """Return the entity F1 of each sentence (1 if there are no entities at all); then the entity counts."""
        from seqeval.metrics.sequence_labeling import get_entities

        scores, counts = [], []
        for true_tags, predicted_tags in zip(*self.decode(predictions, examples), strict=True):
            true, predicted = set(get_entities(true_tags)), set(get_entities(predicted_tags))
            correct = len(true & predicted)
            scores.append(2 * correct / (len(true) + len(predicted)) if true or predicted else 1.0)
            counts.append((correct, len(predicted), len(true)))
        return with_statistics(np.array(scores), np.array(counts))

    def decode(self, predictions: Predictions, examples: Examples) -> tuple[list[list[str]], list[list[str]]]:
        """Return the true and the predicted tags of every sentence, without words that have no tokens."""
        classes, word_ids = predictions["predictions"].numpy(), examples.features.metadata["word_ids"]
        true, predicted = [], []
        for i, row in enumerate(examples.rows):
            tags = examples.features.raw_columns["tags"][int(row)]
            row_classes = classes[i][: len(word_ids[row])]
            is_labeled = row_classes != IGNORE_INDEX
            class_of_word = dict(zip(word_ids[row][is_labeled].tolist(), row_classes[is_labeled].tolist(), strict=True))
            last = max(class_of_word, default=-1)  # words after it were truncated
            words = [word for word in range(len(tags)) if word in class_of_word or word > last]
            true.append([tags[word] for word in words])
            predicted.append([self.labels[class_of_word[word]] if word in class_of_word else "O" for word in words])
        return true, predicted


def _align_labels(corpus: Corpus, row: int, word_ids: Sequence[int | None], label_ids: dict[str, int]) -> list[int]:
    """Return the label of each token: the tag of its word if it is the word's first token, else IGNORE_INDEX."""
    tags = corpus.column("tags")[row]
    if unknown := [tag for tag in tags if tag not in label_ids]:  # also of truncated words, which are scored too
        raise DataError(
            f"{corpus.name}, row {row}: tag '{unknown[0]}' does not occur in the training rows. Fix or remove the row."
        )
    labels, previous = [], None
    for word in word_ids:
        is_first = word is not None and word != previous
        labels.append(label_ids[tags[word]] if is_first else IGNORE_INDEX)
        previous = word
    return labels or [IGNORE_INDEX]


def tagging(corpus: Corpus, attention_mask: bool = True) -> Tagging:
    """One tag per word (B-X, I-X, O). Metrics: F1, precision and recall of entities, as in seqeval."""
    for row, (words, tags) in enumerate(zip(corpus.column("words"), corpus.column("tags"), strict=True)):
        if len(words) != len(tags):
            raise DataError(f"{corpus.name}, row {row}: {len(words)} words have {len(tags)} tags; each word needs one.")
    train_tags = {tag for tags in corpus.column("tags")[: corpus.num_train] for tag in tags}
    invalid = sorted(tag for tag in train_tags if tag != "O" and tag[:2] not in ("B-", "I-"))
    if invalid:
        raise DataError(
            f"{corpus.name}: '{invalid[0]}' is not a tag of the form B-X, I-X or O. Convert the tags to BIO."
        )
    # An entity may be longer in other rows, so every type gets both tags.
    labels = {f"{prefix}-{tag[2:]}" for tag in train_tags if tag != "O" for prefix in "BI"}
    return Tagging(("O", *sorted(labels, key=lambda tag: (tag[2:], tag[0]))), attention_mask)
