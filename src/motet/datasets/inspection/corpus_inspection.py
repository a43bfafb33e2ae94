"""The inspection of a corpus: duplicates, overlap of the splits, labels, lengths, encoding, languages and samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from motet.datasets.corpus import Corpus
from motet.datasets.data_file import NO_GROUP
from motet.datasets.inspection.client_doubts import find_client_doubts
from motet.datasets.inspection.label_counts import count_labels, count_list_sizes
from motet.datasets.inspection.row_facts import (
    RowFacts,
    compute_row_facts,
    count_contradictions,
    count_duplicates,
    input_columns,
    to_text,
)
from motet.datasets.inspection.text_language import detect_language
from motet.datasets.read_report import ReadReport

LANGUAGE_ROWS = 1000  # rows that the languages are determined from
MIN_FREQUENT_WORDS = 2  # of a language in a text; a single one, such as "i", may be of another language
LONG_TEXT = 50  # characters
NUM_SAMPLES = 3
MAX_SAMPLE_CHARACTERS = 160
HASH_FACTOR = 1_000_003  # combines two hashes; odd, so that no bits are lost
MAX_LABELS = 200  # labels that an inspection lists for each split


@dataclass(frozen=True)
class SplitFacts:
    """The training rows or the test rows of a corpus."""

    rows: int
    duplicates: int  # rows whose input and target are equal to an earlier row's
    empty: int  # rows with an empty input
    num_labels: int
    labels: Mapping[str, int]  # the most frequent labels with their counts


@dataclass(frozen=True)
class TextLengths:
    """Lengths of the inputs in characters."""

    shortest: int
    median: int
    percentile_95: int
    longest: int
    num_longest: int  # rows with the longest length; many such rows were probably cut


@dataclass(frozen=True)
class CorpusInspection:
    """What a careful person would look at before training."""

    name: str
    task: str
    is_published: bool  # a named corpus, with known flaws; False: the user's own data
    report: ReadReport
    train: SplitFacts
    test: SplitFacts
    leaked: int  # test rows with an input that is also in the training rows
    leaked_long: int  # those of at least LONG_TEXT characters, which are not equal by chance
    leaked_passages: int | None  # test questions with a passage that is also in the training rows
    contradictions: int  # inputs that occur with more than one target
    copies: int  # rows with two equal columns that should differ
    replaced: int  # rows with a replacement character
    mojibake: int  # rows that look like UTF-8 decoded as Latin-1
    lengths: TextLengths
    languages: Mapping[str, float]  # shares of a sample of rows, largest first
    num_clients: int | None  # values of the column `client`; None: there is no such column
    only_in_train: Mapping[str, int] = field(default_factory=dict)  # the most frequent labels with their counts
    only_in_test: Mapping[str, int] = field(default_factory=dict)
    num_only_in_train: int = 0
    num_only_in_test: int = 0
    client_doubts: tuple[str, ...] = ()  # sentences with names of clients
    max_labels: int = 0  # of a row, if a row has a list of labels
    unlabeled: int = 0  # rows without a label in their list
    missing: int = 0  # rows with an input that looks like a missing value, such as 'nan'
    escaped: int = 0  # rows with escape sequences, such as &amp;
    printed: int = 0  # rows that are printed lists, such as ['a', 'b']
    samples: tuple[Mapping[str, str], ...] = ()

    @property
    def num_rows(self) -> int:
        return self.train.rows + self.test.rows

    def to_dict(self, with_samples: bool) -> dict[str, Any]:
        """Return plain values for JSON. Samples are texts of the corpus: leave them out of what others may read."""
        values = asdict(self)
        if not with_samples:
            values["samples"] = values["client_doubts"] = ()
            for rows in values["report"]["dropped"]:
                rows["examples"] = ()  # they may quote the row
        return values

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> CorpusInspection:
        parts: dict[str, Any] = {
            "report": ReadReport.from_dict(values["report"]),
            "train": SplitFacts(**values["train"]),
            "test": SplitFacts(**values["test"]),
            "lengths": TextLengths(**values["lengths"]),
            "samples": tuple(values.get("samples", ())),
            "client_doubts": tuple(values.get("client_doubts", ())),
        }
        return CorpusInspection(**{**values, **parts})


def inspect_corpus(corpus: Corpus, *, is_published: bool = False, is_test_set: bool = False) -> CorpusInspection:
    """Inspect all rows of a corpus. 100,000 rows take about a second. `is_test_set`: all rows are for testing."""
    facts, size, num_train = compute_row_facts(corpus), len(corpus), 0 if is_test_set else corpus.num_train
    train_labels, test_labels = count_labels(corpus, 0, num_train), count_labels(corpus, num_train, size)
    max_labels, unlabeled = count_list_sizes(corpus)
    return CorpusInspection(
        name=corpus.name,
        task=corpus.task,
        is_published=is_published,
        report=corpus.report,
        train=_describe_split(facts, 0, num_train, train_labels),
        test=_describe_split(facts, num_train, size, test_labels),
        leaked=_count_leaked(facts, num_train),
        leaked_long=_count_leaked(facts, num_train, min_length=LONG_TEXT),
        leaked_passages=None if facts.passages is None else _count_leaked(facts, num_train, facts.passages),
        contradictions=count_contradictions(facts.inputs[~facts.is_empty], facts.targets[~facts.is_empty]),
        copies=int(facts.is_copy.sum()),
        replaced=int(facts.has_replacement.sum()),
        mojibake=int(facts.has_mojibake.sum()),
        lengths=_measure_lengths(facts.lengths),
        languages=_detect_languages(corpus),
        num_clients=len({*corpus.columns["client"]} - {NO_GROUP}) if "client" in corpus.columns else None,
        only_in_train=_difference(train_labels, test_labels, MAX_LABELS),
        only_in_test=_difference(test_labels, train_labels, MAX_LABELS),
        num_only_in_train=len(_difference(train_labels, test_labels)),
        num_only_in_test=len(_difference(test_labels, train_labels)),
        client_doubts=find_client_doubts(corpus),
        max_labels=max_labels,
        unlabeled=unlabeled,
        missing=int(facts.is_missing.sum()),
        escaped=int(facts.has_escapes.sum()),
        printed=int(facts.is_printed.sum()),
        samples=_draw_samples(corpus),
    )


def _describe_split(facts: RowFacts, start: int, stop: int, labels: Mapping[str, int]) -> SplitFacts:
    rows = slice(start, stop)
    return SplitFacts(
        rows=stop - start,
        duplicates=count_duplicates((facts.inputs[rows] * HASH_FACTOR ^ facts.targets[rows])[~facts.is_empty[rows]]),
        empty=int(facts.is_empty[rows].sum()),
        num_labels=len(labels),
        labels=dict(list(labels.items())[:MAX_LABELS]),
    )


def _count_leaked(facts: RowFacts, num_train: int, hashes: np.ndarray | None = None, min_length: int = 0) -> int:
    """Count the test rows with a hash that a training row has, too. Empty texts do not count."""
    hashes = facts.inputs if hashes is None else hashes
    is_leaked = np.isin(hashes[num_train:], hashes[:num_train])
    return int((is_leaked & ~facts.is_empty[num_train:] & (facts.lengths[num_train:] >= min_length)).sum())


def _measure_lengths(lengths: np.ndarray) -> TextLengths:
    longest = int(lengths.max())
    return TextLengths(
        shortest=int(lengths.min()),
        median=int(np.median(lengths)),
        percentile_95=int(np.percentile(lengths, 95)),
        longest=longest,
        num_longest=int((lengths == longest).sum()),
    )


def _detect_languages(corpus: Corpus) -> dict[str, float]:
    rows = np.unique(np.linspace(0, len(corpus) - 1, LANGUAGE_ROWS).astype(np.int64)).tolist()
    column = corpus.columns[input_columns(corpus)[0]]
    counts = Counter(detect_language(to_text(column[row]), MIN_FREQUENT_WORDS) for row in rows)
    return {language: count / len(rows) for language, count in counts.most_common()}


def _difference(labels: Mapping[str, int], others: Mapping[str, int], limit: int | None = None) -> dict[str, int]:
    missing = [(label, count) for label, count in labels.items() if label not in others]
    return dict(missing[:limit])


def _draw_samples(corpus: Corpus) -> tuple[dict[str, str], ...]:
    """Return training rows from the beginning, the middle and the end, without their columns for clients and offsets."""
    rows = dict.fromkeys(np.linspace(0, corpus.num_train - 1, NUM_SAMPLES).astype(int).tolist())
    names = [name for name in corpus.columns if name not in ("client", "starts")]
    return tuple({name: _shorten(corpus.columns[name][row]) for name in names} for row in rows)


def _shorten(value: Any) -> str:
    text = " ".join(to_text(value).split()) if isinstance(value, str | list | tuple) else str(value)
    return text if len(text) <= MAX_SAMPLE_CHARACTERS else f"{text[: MAX_SAMPLE_CHARACTERS - 1]}…"
