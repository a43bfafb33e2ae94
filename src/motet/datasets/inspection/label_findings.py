"""Findings about the labels of a corpus: misspelled, missing, joined or rare ones."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping

from motet.datasets.inspection.corpus_inspection import CorpusInspection
from motet.datasets.inspection.finding import Finding, list_counts
from motet.datasets.missing_values import looks_missing

UNIQUE_LABEL_SHARE = 0.5  # labels per training row; such a column holds identifiers or texts
MIN_ROWS = 20  # shares of fewer rows mean little
MIN_ROWS_PER_LABEL = 10  # on average; with fewer rows, some labels have a single row by chance
LABEL_SEPARATORS = ",;|/#"


def check_labels(inspection: CorpusInspection) -> Iterator[Finding]:
    if inspection.task == "tagging":
        yield from _check_entity_types(inspection)
    elif inspection.task != "qa":
        yield from _check_names(inspection)


def _check_names(inspection: CorpusInspection) -> Iterator[Finding]:
    if inspection.only_in_test and inspection.train.rows:
        unseen = list_counts(inspection.only_in_test, inspection.num_only_in_test)
        yield _unusable_labels(
            f"{unseen}: labels of test rows that no training row has.",
            "Fix these rows, or add training rows with these labels.",
        )
    labels = inspection.train.labels
    if inspection.task == "classification" and inspection.train.num_labels == 1:
        yield _unusable_labels(
            f"the training rows have one label, '{next(iter(labels))}'; classification needs at least two.",
            "Add rows with other labels, or name the right column with data.label=….",
        )
    yield from _check_spelling(inspection)
    if missing := {label: count for label, count in labels.items() if looks_missing(label)}:
        yield _label_mistake(
            inspection,
            f"{list_counts(missing)}: labels that look like missing values.",
            "Remove these rows, or give them a label.",
        )
    size = inspection.train.rows
    if size >= MIN_ROWS and inspection.train.num_labels >= UNIQUE_LABEL_SHARE * size:
        yield _label_mistake(
            inspection,
            f"there are {inspection.train.num_labels:,} labels for {size:,} training rows.",
            "Name the right column with data.label=…, or for numbers set task.type=regression.",
            may_need_more_rows=True,
        )


def _check_spelling(inspection: CorpusInspection) -> Iterator[Finding]:
    labels, size = inspection.train.labels, inspection.num_rows
    if alike := _find_similar_labels(labels):
        yield _label_mistake(
            inspection,
            f"the labels {list_counts(alike)} differ only in case, spaces or characters that look alike.",
            "Write them alike.",
        )
    source = inspection.report.columns.get("label", "")
    if names := {label: count for label, count in labels.items() if source.startswith(f"column '{label}' (")}:
        yield _label_mistake(
            inspection, f"the label {list_counts(names)} is the name of its column.", "Remove the repeated header."
        )
    if joined := {label: count for label, count in labels.items() if _is_joined(label, labels)}:
        yield Finding(
            kind="labels",
            message=f"{list_counts(joined)}: labels that look like several labels.",
            advice="In a CSV file, write commas between the labels of a row and set task=multi_label.",
            is_mistake=inspection.task == "multi_label" and not inspection.is_published,
        )
    both = {label: count + inspection.test.labels.get(label, 0) for label, count in labels.items()}
    rare = {label: 1 for label, count in both.items() if count == 1}
    if rare and not inspection.is_published and size >= MIN_ROWS_PER_LABEL * inspection.train.num_labels:
        yield Finding(
            kind="rare labels",
            message=f"{list_counts(rare)}: labels of a single row.",
            advice="Check whether they are misspelled, or from a header or a footer.",
            is_mistake=False,
        )


def _is_joined(label: str, labels: Mapping[str, int]) -> bool:
    """True for 'food|music' if 'food' is a label, too, and for a list such as "['food', 'music']"."""
    if label.startswith("[") and label.endswith("]"):
        return True
    parts = ([part.strip() for part in label.split(separator)] for separator in LABEL_SEPARATORS if separator in label)
    return any(part in labels for split in parts for part in split)


def _check_entity_types(inspection: CorpusInspection) -> Iterator[Finding]:
    if not inspection.train.rows:  # all rows are for testing
        return
    if not inspection.train.labels:
        yield _label_mistake(
            inspection,
            "no training word has a tag other than O.",
            "Name the right column with data.columns.tags=….",
            may_need_more_rows=True,
        )
    else:
        yield from _check_spelling(inspection)
    if inspection.train.labels and inspection.only_in_test:
        kinds = list_counts(inspection.only_in_test, inspection.num_only_in_test)
        yield _label_mistake(
            inspection,
            f"{kinds}: entity types of test rows that no training row has.",
            "Check the tags of both files.",
            may_need_more_rows=True,
        )


def _label_mistake(
    inspection: CorpusInspection, message: str, advice: str, *, may_need_more_rows: bool = False
) -> Finding:
    is_mistake = not inspection.is_published
    return Finding("labels", message, advice, is_mistake=is_mistake, may_need_more_rows=may_need_more_rows)


def _unusable_labels(message: str, advice: str) -> Finding:
    """Return a mistake that makes training or evaluation impossible, so that it cannot be accepted."""
    return Finding("labels", message, advice, is_mistake=True, can_accept=False, may_need_more_rows=True)


def _find_similar_labels(counts: Mapping[str, int]) -> dict[str, int]:
    groups: dict[str, list[str]] = {}
    for label in counts:
        groups.setdefault(_simplify(label), []).append(label)
    return {label: counts[label] for group in groups.values() if len(group) > 1 for label in group}


def _simplify(label: str) -> str:
    """Return a label without case, spaces, invisible characters and leading zeros, and with one kind of hyphen."""
    characters = unicodedata.normalize("NFKC", label.casefold())
    kinds = ((character, unicodedata.category(character)) for character in characters)
    text = "".join("-" if kind == "Pd" else character for character, kind in kinds if kind != "Cf")
    return re.sub(r"^0+(?=\d)", "", " ".join(text.split()))
