"""Findings about the labels of a corpus: misspelled, missing, joined or rare ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from motet.datasets.inspection.corpus_inspection import CorpusInspection
from motet.datasets.inspection.damaged_names import find_excel_dates, find_undecodable
from motet.datasets.inspection.finding import Finding, list_counts
from motet.datasets.inspection.similar_names import find_mixed_booleans, find_similar
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
    yield from _check_damage(inspection)
    if missing := {label: count for label, count in labels.items() if looks_missing(label)}:
        yield _label_mistake(
            inspection,
            f"{list_counts(missing)}: labels that look like missing values.",
            "Remove these rows, or give them a label.",
        )
    if inspection.task == "multi_label" and inspection.max_labels == 1 and not inspection.is_published:
        none = f", and {inspection.unlabeled:,} have none" if inspection.unlabeled else ""
        yield Finding(
            kind="labels",
            message=f"no text has more than one label{none}.",
            advice="If each text should have one label, set task=classification and remove texts without a label.",
            is_mistake=False,
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
    if alike := find_similar(labels):
        yield _label_mistake(
            inspection,
            f"the labels {list_counts(alike)} differ only in case, spaces or characters that look alike.",
            "Write them alike.",
        )
    if mixed := find_mixed_booleans(labels):
        yield _label_mistake(
            inspection, f"the labels {list_counts(mixed)} say yes or no in several ways.", "Write them alike."
        )
    source = inspection.report.columns.get("label", "")
    if names := {label: count for label, count in labels.items() if source.startswith(f"column '{label}' (")}:
        yield _label_mistake(
            inspection, f"the label {list_counts(names)} is the name of its column.", "Remove the repeated header."
        )
    places = _find_places(labels)
    if joined := {label: count for label, count in labels.items() if _is_joined(label, labels, places)}:
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


def _check_damage(inspection: CorpusInspection) -> Iterator[Finding]:
    labels = inspection.train.labels
    if undecodable := find_undecodable(labels):
        yield _label_mistake(
            inspection,
            f"{list_counts(undecodable)}: labels with characters that were decoded wrongly.",
            "Fix the file, or set data.encoding.",
        )
    if (dates := find_excel_dates(labels)) and not inspection.is_published:
        yield Finding(
            kind="labels",
            message=f"{list_counts(dates)}: labels that are dates, unlike the others.",
            advice="Excel turns values such as 3-5 into dates: correct these labels.",
            is_mistake=False,
        )


def _is_joined(label: str, labels: Mapping[str, int], places: Mapping[str, set[bool]]) -> bool:
    """True for 'food|music' if 'food' is a label, too, or ends another one; and for a list such as "['food', 'music']"."""
    if label[:1] + label[-1:] in ("[]", "{}"):
        return True
    return any(part in labels or len(places[part]) > 1 for part, _ in _split(label))


def _find_places(labels: Mapping[str, int]) -> dict[str, set[bool]]:
    """Return the parts of labels such as 'food|music', and whether they are first. In 'sport/golf', sport is always."""
    places: dict[str, set[bool]] = {}
    for label in labels:
        for part, is_first in _split(label):
            places.setdefault(part, set()).add(is_first)
    return places


def _split(label: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a label between separators, and whether they are first."""
    for separator in LABEL_SEPARATORS:
        for i, part in enumerate(label.split(separator) if separator in label else ()):
            yield part.strip(), i == 0


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
        yield from _check_damage(inspection)
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
