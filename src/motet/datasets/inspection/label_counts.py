"""Count what a model should predict in each split: labels, entity types, answerable questions."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import numpy as np

from motet.datasets.columns import CategoryColumn
from motet.datasets.corpus import Corpus
from motet.datasets.inspection.row_facts import batches
from motet.datasets.task_columns import LIST_COLUMNS, find_task_columns


def count_labels(corpus: Corpus, start: int, stop: int) -> dict[str, int]:
    """Count the labels of rows `start` to `stop`, most frequent first. Tasks without labels have none.

    For tagging, an entity counts once. For question answering, the labels are "answerable" and "unanswerable".
    """
    target = find_task_columns(corpus.task, corpus.columns).target
    if target == "label":
        counts = _count_values(corpus, start, stop)
    elif target == "tags":
        counts = _count_entities(corpus, start, stop)
    elif target == "answers":
        answers = corpus.columns["answers"]
        counts = Counter(
            "answerable" if values else "unanswerable" for rows in batches(start, stop) for values in answers[rows]
        )
    elif target in LIST_COLUMNS:
        lists = corpus.columns[target]
        counts = Counter(value for rows in batches(start, stop) for values in lists[rows] for value in values)
    else:
        return {}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def count_list_sizes(corpus: Corpus) -> tuple[int, int]:
    """Return the largest number of labels of a row, and the number of rows without one. Other tasks: 0 and 0."""
    if find_task_columns(corpus.task, corpus.columns).target != "labels":
        return 0, 0
    sizes = [len(values) for rows in batches(0, len(corpus)) for values in corpus.columns["labels"][rows]]
    return max(sizes), sizes.count(0)


def _count_values(corpus: Corpus, start: int, stop: int) -> Counter[str]:
    labels = corpus.columns["label"]
    if isinstance(labels, CategoryColumn):
        counts = np.bincount(labels.codes[start:stop], minlength=len(labels.names))
        return Counter({name: int(count) for name, count in zip(labels.names, counts, strict=True) if count})
    return Counter(map(str, chain.from_iterable(labels[rows] for rows in batches(start, stop))))


def _count_entities(corpus: Corpus, start: int, stop: int) -> Counter[str]:
    tags = corpus.columns["tags"]
    tag_counts: Counter[str] = Counter()
    for rows in batches(start, stop):
        tag_counts.update(chain.from_iterable(tags[rows]))
    has_prefixes = any(str(tag).startswith("B-") for tag in tag_counts)
    counts: Counter[str] = Counter()
    for tag, count in tag_counts.items():
        prefix, separator, kind = str(tag).partition("-")
        if prefix == "B" and separator:
            counts[kind] += count
        elif tag != "O" and not has_prefixes:  # tags of another scheme, such as parts of speech
            counts[str(tag)] += count
        elif prefix == "I" and separator:
            counts[kind] += 0  # a type without a single B- tag still shows up
    return counts
