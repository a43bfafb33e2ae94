"""Build a group of clients: divide the rows of a corpus's features as the partition divides its examples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from motet.datasets.corpus import Corpus
from motet.datasets.inspection.corpus_inspection import CorpusInspection
from motet.experiment.build.client_lists import ClientRange
from motet.experiment.build.federation import ClientGroup
from motet.learning.data.features import IGNORE_INDEX, Features, Ragged
from motet.learning.modules.model import Model
from motet.partitions.partition import ClientRows, Partition
from motet.tasks.language_modeling import LanguageModeling, group_texts
from motet.tasks.task import Task


class RowSplits(NamedTuple):
    """The rows of each split; `public`, `dev` and `local_dev` (the rows of `dev` by client) are optional."""

    train: ClientRows
    test: ClientRows
    global_test: np.ndarray
    public: np.ndarray | None
    dev: np.ndarray | None
    local_dev: ClientRows | None


def build_group(
    *,
    name: str,
    task: Task,
    model: Model,
    corpus: Corpus,
    features: Features,
    partition: Partition,
    max_tokens: int,
    clients: ClientRange,
    inspection: CorpusInspection | None = None,
) -> ClientGroup:
    """Build a group. Texts for language modeling are grouped into full sequences, client by client."""
    splits = _split_rows(corpus, features, partition)
    if isinstance(task, LanguageModeling) and task.group_texts:
        features, splits = _regroup(features, splits, partition.digest, max_tokens)
    return ClientGroup(
        name=name,
        task=task,
        model=model,
        corpus=corpus,
        features=features,
        partition=partition,
        train=splits.train,
        test=splits.test,
        global_test_rows=splits.global_test,
        clients=clients,
        inspection=inspection,
        public_rows=splits.public,
        dev_rows=splits.dev,
        local_dev=splits.local_dev,
    )


def rows_for_examples(examples: np.ndarray, first: np.ndarray | None) -> np.ndarray:
    """Return the rows of some examples: example i has the rows first[i] to first[i + 1], or without `first` row i."""
    return ClientRows.from_lists([examples]).expand(first).rows


def _split_rows(corpus: Corpus, features: Features, partition: Partition) -> RowSplits:
    first = features.example_offsets
    global_test = np.arange(corpus.num_train, len(corpus)) if partition.global_test is None else partition.global_test
    return RowSplits(
        train=partition.train.expand(first),
        test=partition.test.expand(first),
        global_test=rows_for_examples(global_test, first),
        public=None if partition.public is None else rows_for_examples(partition.public, first),
        dev=None if partition.dev is None else rows_for_examples(partition.dev, first),
        local_dev=None if partition.local_dev is None else partition.local_dev.expand(first),
    )


def _regroup(features: Features, splits: RowSplits, digest: str, max_tokens: int) -> tuple[Features, RowSplits]:
    """Concatenate each client's texts and cut them into sequences of `max_tokens`. Clients' texts are never mixed."""
    public, dev = (rows if rows is not None else np.zeros(0, np.int64) for rows in (splits.public, splits.dev))
    local_dev = splits.local_dev or ClientRows.from_lists([])
    shares = (splits.train, splits.test, ClientRows.from_lists([public]), ClientRows.from_lists([dev]), local_dev)
    pieces = [rows for s in shares for rows in s.phase_pieces()]
    sequences, offsets = group_texts(features.ragged("input_ids"), pieces, max_tokens)
    labels = Ragged(sequences.values, sequences.offsets, IGNORE_INDEX)
    rows = np.arange(offsets[-1])
    # offsets[i] is the first row of piece i; the pieces of train, test, public, dev and local dev follow each other.
    test_start, public_start, dev_start, local_start = np.cumsum([len(s.offsets) - 1 for s in shares[:4]])
    columns = {"input_ids": sequences, "labels": labels}
    return Features(f"{features.key}-{digest}", columns, raw_columns=features.raw_columns), RowSplits(
        train=ClientRows(rows, offsets[: test_start + 1], splits.train.phases),
        test=ClientRows(rows, offsets[test_start : public_start + 1], splits.test.phases),
        global_test=rows[offsets[test_start] : offsets[public_start]],
        public=None if splits.public is None else rows[offsets[public_start] : offsets[dev_start]],
        dev=None if splits.dev is None else rows[offsets[dev_start] : offsets[local_start]],
        local_dev=None if splits.local_dev is None else ClientRows(rows, offsets[local_start:]),
    )
