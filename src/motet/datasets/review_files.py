"""Read review corpora in their own formats: Blitzer's .review files, FDU-MTL, and Microsoft's paraphrase corpus."""

from __future__ import annotations

import re

from motet.core.errors import DataError
from motet.datasets.column_names import add_fixed_columns
from motet.datasets.data_file import DataFile
from motet.datasets.original_files import MISSING_COLUMNS
from motet.datasets.raw_table import TableBuilder

REVIEW = re.compile(r"<review>(.*?)</review>", re.DOTALL)
REVIEW_LABELS = ("positive", "negative")
FDU_FILE = re.compile(r"(.+)\.task\.(train|test|unlabel)")
FDU_LABELS = {"0": "negative", "1": "positive"}
MSR_FILE = re.compile(r"msr_paraphrase_(train|test)\.txt")
MSR_HEADER = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
MSR_LABELS = {"0": "not_equivalent", "1": "equivalent"}


def read_reviews(file: DataFile, table: TableBuilder) -> None:
    """Read Blitzer's reviews. The label is the name of the file, or follows from the rating; 3 stars have no label."""
    text = file.read_text()
    reviews = REVIEW.findall(text)
    if not reviews or text.count("<review>") != len(reviews):
        raise DataError(
            f"{file.name}: {text.count('<review>')} reviews begin and {len(reviews)} end; expected <review>…</review>. "
            "Use the files of sorted_data_acl: processed_acl has word counts instead of texts."
        )
    label = file.stem if file.stem in REVIEW_LABELS else None
    columns: dict[str, list[str]] = {"text": [], "label": []}
    for number, review in enumerate(reviews, 1):
        review_text, rating = _get_element(review, "review_text"), _get_element(review, "rating")
        review_label = label or _label_from_rating(file, number, rating)
        if not review_text or review_label is None:
            reason = "reviews without a text" if not review_text else "reviews with 3 stars"
            file.log.drop(reason, file.path, f"review {number}")
            continue
        columns["text"].append(review_text)
        columns["label"].append(review_label)
    add_fixed_columns(file, table, columns, "review", "Blitzer's format")


def _get_element(review: str, name: str) -> str:
    match = re.search(rf"<{name}>(.*?)</{name}>", review, re.DOTALL)
    return match[1].strip() if match else ""


def _label_from_rating(file: DataFile, number: int, rating: str) -> str | None:
    try:
        stars = float(rating)
    except ValueError:
        raise DataError(
            f"{file.name}, review {number}: the rating is '{rating}'; expected a number, because the name of the file "
            "is neither positive.review nor negative.review."
        ) from None
    return None if stars == 3 else "positive" if stars > 3 else "negative"


def read_fdu_mtl(file: DataFile, table: TableBuilder) -> None:
    """Read lines of 0 or 1, a tab and a text."""
    columns: dict[str, list[str]] = {"text": [], "label": []}
    for number, line in file.read_lines():
        label, _, text = line.partition("\t")
        if not line.strip():
            continue
        if label.strip() not in FDU_LABELS:
            raise DataError(f"{file.name}, line {number}: '{line[:40]}' does not start with 0 or 1 and a tab.")
        if not text.strip():
            file.log.drop(MISSING_COLUMNS, file.path, number)
            continue
        columns["text"].append(text.strip())
        columns["label"].append(FDU_LABELS[label.strip()])
    add_fixed_columns(file, table, columns, "text", "FDU-MTL's format")


def read_msr_paraphrases(file: DataFile, table: TableBuilder) -> None:
    """Read pairs of sentences. Quotation marks have no special meaning."""
    columns: dict[str, list[str]] = {"text": [], "second": [], "label": []}
    for number, line in file.read_lines():
        fields = line.split("\t")
        if number == 1 and fields == MSR_HEADER:
            continue
        if not line.strip():
            continue
        if len(fields) != len(MSR_HEADER) or fields[0] not in MSR_LABELS:
            raise DataError(
                f"{file.name}, line {number}: '{line[:40]}' is not a row of {', '.join(MSR_HEADER)}. Download the file "
                "again."
            )
        for name, value in zip(columns, (fields[3].strip(), fields[4].strip(), MSR_LABELS[fields[0]]), strict=True):
            columns[name].append(value)
    add_fixed_columns(file, table, columns, "pair", "the format of Microsoft's paraphrase corpus")
