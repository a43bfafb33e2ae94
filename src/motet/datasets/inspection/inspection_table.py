"""The inspection of a corpus as a short table: names and sentences, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from motet.datasets.inspection.corpus_inspection import CorpusInspection
from motet.datasets.inspection.finding import format_share, list_first
from motet.datasets.inspection.findings import has_cut_texts
from motet.datasets.read_report import SourceFile

MAX_FILES, MAX_LABELS, MAX_LANGUAGES = 6, 12, 4
MIN_LANGUAGE_SHARE = 0.01


def describe_inspection(inspection: CorpusInspection) -> dict[str, str]:
    """Return the rows of the table, in order."""
    return {name: text for name, text in _describe(inspection) if text}


def _describe(inspection: CorpusInspection) -> Iterator[tuple[str, str]]:
    report = inspection.report
    reason = f" ({report.task_reason})" if report.task_reason else ""
    yield "corpus", f"{inspection.name}: {inspection.task}{reason}"
    yield "files", _describe_files(inspection)
    yield "ignored files", list_first(report.ignored_files, MAX_FILES)
    yield "columns", ", ".join(f"{name}: {source}" for name, source in report.columns.items())
    yield "unused columns", list_first(report.unused_columns, MAX_LABELS)
    yield "rows", _describe_rows(inspection)
    yield "left out", _describe_dropped(inspection)
    yield "changed", ", ".join(f"{count:,} {what}" for what, count in report.changes.items())
    yield "duplicates", _describe_duplicates(inspection)
    yield "in both splits", _describe_leak(inspection)
    yield "labels", _describe_labels(inspection)
    yield "clients", "" if inspection.num_clients is None else f"{inspection.num_clients:,} in the column client"
    yield "only in one split", _describe_exclusive_labels(inspection)
    yield "texts", _describe_lengths(inspection)
    yield "encoding", _describe_encoding(inspection)
    yield "languages", _describe_languages(inspection.languages)
    yield "notes", " ".join([*report.notes, *report.warnings])
    for number, sample in enumerate(inspection.samples, start=1):
        yield f"sample {number}", " | ".join(f"{name}: {text}" for name, text in sample.items())


def _describe_files(inspection: CorpusInspection) -> str:
    report = inspection.report
    return list_first(list(map(_describe_file, report.files)), MAX_FILES) or report.origin


def _describe_file(file: SourceFile) -> str:
    count = f"{file.num_files:,} files, " if file.num_files > 1 else ""
    return f"{file.name} ({count}{format_size(file.size)})"


def format_size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"


def _describe_rows(inspection: CorpusInspection) -> str:
    read, used = inspection.report.num_rows, inspection.num_rows
    splits = f"{inspection.train.rows:,} for training, {inspection.test.rows:,} for testing"
    return f"{read:,} read; {splits}" if read and read != used else splits


def _describe_dropped(inspection: CorpusInspection) -> str:
    parts = []
    for rows in inspection.report.dropped:
        examples = f" ({'; '.join(rows.examples)}{'; …' if rows.count > len(rows.examples) else ''})"
        parts.append(f"{rows.count:,} {rows.reason}{examples if rows.examples else ''}")
    return ", ".join(parts) or "no rows"


def _describe_duplicates(inspection: CorpusInspection) -> str:
    train, test = inspection.train, inspection.test
    text = f"{train.duplicates:,} training rows ({format_share(train.duplicates, train.rows)}), {test.duplicates:,} test rows"
    if inspection.contradictions:
        text += f"; {inspection.contradictions:,} texts occur with different targets"
    return text


def _describe_leak(inspection: CorpusInspection) -> str:
    size = inspection.test.rows
    text = f"{inspection.leaked:,} test texts are also in training ({format_share(inspection.leaked, size)})"
    if inspection.leaked_passages is not None:
        count = inspection.leaked_passages
        text += f"; {count:,} test questions have a passage of training ({format_share(count, size)})"
    return text


def _describe_labels(inspection: CorpusInspection) -> str:
    train, test = inspection.train, inspection.test
    if not train.labels and not test.labels:
        return ""
    names = dict.fromkeys([*train.labels, *test.labels])
    counts = [f"{name or repr(name)} ({train.labels.get(name, 0):,} + {test.labels.get(name, 0):,})" for name in names]
    num_labels = train.num_labels + inspection.num_only_in_test
    none = f"; {inspection.unlabeled:,} rows have none" if inspection.unlabeled else ""
    return f"{num_labels:,} (training + test): {list_first(counts, MAX_LABELS, num_labels)}{none}"


def _describe_exclusive_labels(inspection: CorpusInspection) -> str:
    if inspection.task == "qa" or not inspection.train.labels:
        return ""
    parts = []
    for split, labels, count in (
        ("training", inspection.only_in_train, inspection.num_only_in_train),
        ("test", inspection.only_in_test, inspection.num_only_in_test),
    ):
        if labels:
            names = list_first([f"{name} ({rows:,})" for name, rows in labels.items()], MAX_LABELS, count)
            parts.append(f"{split}: {names}")
    return "; ".join(parts) or "no label"


def _describe_lengths(inspection: CorpusInspection) -> str:
    lengths, empty = inspection.lengths, inspection.train.empty + inspection.test.empty
    text = f"{lengths.shortest:,} to {lengths.longest:,} characters, median {lengths.median:,}; {empty:,} empty"
    if has_cut_texts(inspection):
        text += f"; {lengths.num_longest:,} of the longest length, probably cut"
    return text


def _describe_encoding(inspection: CorpusInspection) -> str:
    report = inspection.report
    encodings = {
        f"{file.encoding} ({file.encoding_reason})" if file.encoding_reason else file.encoding: None
        for file in report.files
        if file.encoding
    }
    parts = [", ".join(encodings), f"{report.replaced_bytes:,} replaced bytes"] if encodings else []
    if any(file.has_byte_order_mark for file in report.files):
        parts.append("byte-order mark removed")
    for count, what in ((inspection.replaced, "U+FFFD"), (inspection.mojibake, "wrongly decoded characters")):
        if count:
            parts.append(f"{count:,} texts with {what}")
    return "; ".join(parts)


def _describe_languages(languages: Mapping[str, float]) -> str:
    other_names = {"none": "no letters", "Latin": "unclear (Latin script)"}
    names = [
        f"{other_names.get(name, name)} {100 * share:.0f} %"
        for name, share in languages.items()
        if share >= MIN_LANGUAGE_SHARE
    ]
    return list_first(names, MAX_LANGUAGES)
