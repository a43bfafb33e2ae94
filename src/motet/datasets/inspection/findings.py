"""Findings of an inspection: what is almost certainly a mistake stops a run, everything else is a warning.

The limits come from published corpora. The test texts of 33 of them overlap with the training texts by at most 2 %,
except Amazon reviews (6.5 %) and the passages of SubjQA (11 %).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from motet.core.errors import DataError
from motet.datasets.inspection.corpus_inspection import CorpusInspection
from motet.datasets.inspection.finding import MAX_LISTED, Finding, format_share, list_first
from motet.datasets.inspection.label_findings import check_labels
from motet.datasets.read_report import UNKNOWN_FORMAT

MISTAKE_KINDS = ("leak", "labels", "columns", "empty", "encoding", "dropped")
LEAK_WARNING_SHARE = 0.005
LEAK_SHARE = 0.02  # of the test rows of your own data
PUBLISHED_LEAK_SHARE = 0.5  # no published corpus comes near it, so files were mixed up
MIN_LEAKED = 3  # test rows; fewer may be a coincidence in a small corpus
COPY_SHARE, EMPTY_SHARE, REPLACED_SHARE, MOJIBAKE_SHARE, DROPPED_SHARE = 0.5, 0.05, 0.01, 0.05, 0.1
MIN_ROWS = 20  # shares of fewer rows mean little
ESCAPED_SHARE, PRINTED_SHARE = 0.01, 0.5
DUPLICATE_SHARE, CONTRADICTION_SHARE = 0.1, 0.05
MIN_CUT_LENGTH, MIN_CUT_ROWS, CUT_SHARE = 100, 20, 0.01
MAX_SENTENCE_LENGTH = 2_000
OUTLIER_FACTOR, MIN_OUTLIER_LENGTH = 100, 10_000
EMPTY_LINES = "empty lines"  # of a text file; they are between paragraphs, and no rows


def find_problems(
    inspection: CorpusInspection, *, is_one_client: bool = False, limit: int | None = None
) -> list[Finding]:
    """Return all findings. One client in a deployment may lack labels that others have, and its leaks are warnings.

    `limit` is the setting data.limit. What a larger one may resolve has this advice, too.
    """
    checks: list[Callable[[CorpusInspection], Iterable[Finding]]] = [
        _check_reading,
        _check_leak,
        _check_columns,
        _check_empty,
        _check_encoding,
        _check_forms,
        _check_dropped,
        _check_duplicates,
        _check_lengths,
    ]
    if not is_one_client:
        checks += [check_labels, _check_clients]
    findings = [finding for check in checks for finding in check(inspection)]
    if limit is not None and inspection.train.rows == limit:
        findings = [
            _advise_larger_limit(finding, limit) if finding.may_need_more_rows else finding for finding in findings
        ]
    if is_one_client:  # equal texts spoil only the client's own evaluation
        findings = [replace(finding, is_mistake=False) if finding.kind == "leak" else finding for finding in findings]
    if inspection.is_published:  # a user cannot change it
        return [finding if finding.is_mistake else replace(finding, advice="") for finding in findings]
    return findings


def _advise_larger_limit(finding: Finding, limit: int) -> Finding:
    other = finding.advice[:1].lower() + finding.advice[1:]
    return replace(
        finding, advice=f"Training rows were left out (data.limit={limit}): use more of them. Otherwise, {other}"
    )


def select_mistakes(findings: Sequence[Finding], accept: Sequence[str]) -> list[Finding]:
    """Return the findings that stop a run: mistakes that the recipe does not accept."""
    return [f for f in findings if f.is_mistake and not (f.can_accept and f.kind in accept)]


def accept_setting(mistakes: Sequence[Finding], accept: Sequence[str]) -> str:
    """Return the setting that accepts mistakes, such as data.accept=[leak]; empty if none of them can be accepted."""
    kinds = dict.fromkeys(mistake.kind for mistake in mistakes if mistake.can_accept)
    return f"data.accept=[{', '.join([*accept, *kinds])}]" if kinds else ""


def require_no_mistakes(name: str, findings: Sequence[Finding], accept: Sequence[str]) -> None:
    """Raise an error if there are mistakes that the recipe does not accept."""
    mistakes = select_mistakes(findings, accept)
    if not mistakes:
        return
    setting = accept_setting(mistakes, accept)
    hint = f" If this is intended, set {setting}." if setting else ""
    raise DataError(f"{name}: {' '.join(map(str, mistakes))}{hint} To see more of the data: motet data inspect")


def _check_reading(inspection: CorpusInspection) -> Iterator[Finding]:
    """Yield what the reader guessed or changed."""
    report = inspection.report
    if inspection.is_published:  # its reader knows the format
        return
    for text in report.warnings:
        yield Finding("reading", text, "", is_mistake=False)
    if unknown := [name for name in report.ignored_files if name.endswith(f"({UNKNOWN_FORMAT})")]:
        yield Finding(
            kind="reading",
            message=f"files that are not read: {list_first(unknown, MAX_LISTED)}.",
            advice="",
            is_mistake=False,
        )
    for what, count in report.changes.items():
        yield Finding("changed", f"{count:,} {what}.", "", is_mistake=False)
    guesses = {file.encoding: file.name for file in report.files if file.is_encoding_guessed}
    for encoding, name in guesses.items():
        yield Finding(
            kind="encoding",
            message=f"{name}: the encoding {encoding} is a guess.",
            advice="If characters of the samples are wrong (motet data inspect), set data.encoding.",
            is_mistake=False,
        )
    if report.replaced_bytes:
        yield Finding(
            kind="encoding",
            message=f"{report.replaced_bytes:,} bytes are invalid in UTF-8. They were read as latin-1.",
            advice="Fix the file, or set data.encoding.",
            is_mistake=False,
        )


def _check_leak(inspection: CorpusInspection) -> Iterator[Finding]:
    limit = PUBLISHED_LEAK_SHARE if inspection.is_published else LEAK_SHARE
    count, size = inspection.leaked, inspection.test.rows
    leak = "test texts are also training texts"
    if inspection.leaked_passages is not None:  # a question that is in both splits has its passage in both, too
        count, leak = inspection.leaked_passages, "test questions are about passages of training questions"
    # Short lines of a text are often equal by chance: only long ones tell that lines were copied.
    copied = inspection.leaked_long if inspection.task == "lm" else count
    if count >= max(MIN_LEAKED, LEAK_WARNING_SHARE * size):
        yield Finding(
            kind="leak",
            message=f"{count:,} of {size:,} {leak} ({format_share(count, size)}).",
            advice="Remove them from the training or the test rows, or split the data again without duplicates.",
            is_mistake=copied >= limit * size,
        )


def _check_columns(inspection: CorpusInspection) -> Iterator[Finding]:
    names = {"seq2seq": "source and target", "qa": "context and question", "classification": "text and label"}
    names |= {"preference": "chosen and rejected"}
    if inspection.copies >= COPY_SHARE * inspection.num_rows:
        columns = names.get(inspection.task, "text and score")
        yield Finding(
            kind="columns",
            message=f"{inspection.copies:,} of {inspection.num_rows:,} rows have the same value twice: {columns}, or "
            "both texts of a pair, are equal.",
            advice="Name the right columns, for example data.text=… or data.columns.target=….",
            is_mistake=not inspection.is_published,
        )


def _check_empty(inspection: CorpusInspection) -> Iterator[Finding]:
    count, size = inspection.train.empty + inspection.test.empty, inspection.num_rows
    if count:
        yield Finding(
            kind="empty",
            message=f"{count:,} of {size:,} texts are empty ({format_share(count, size)}).",
            advice="Remove these rows, or name the right column with data.text=….",
            is_mistake=not inspection.is_published and count >= EMPTY_SHARE * size,
        )
    if count := inspection.missing:
        yield Finding(
            kind="empty",
            message=f"{count:,} of {size:,} texts look like missing values, such as 'nan' or '#NAME?' "
            f"({format_share(count, size)}).",
            advice="Remove these rows.",
            is_mistake=not inspection.is_published and count >= EMPTY_SHARE * size,
        )


def _check_encoding(inspection: CorpusInspection) -> Iterator[Finding]:
    size, is_own = inspection.num_rows, not inspection.is_published
    if count := inspection.replaced:
        yield Finding(
            kind="encoding",
            message=f"{count:,} of {size:,} texts have a replacement character (U+FFFD) for bytes that could not be "
            f"decoded ({format_share(count, size)}).",
            advice="Set data.encoding, for example data.encoding=latin-1, or fix the file.",
            is_mistake=is_own and count >= REPLACED_SHARE * size,
        )
    if count := inspection.mojibake:
        yield Finding(
            kind="encoding",
            message=f"{count:,} of {size:,} texts look like UTF-8 that was decoded as Latin-1, such as 'Ã©' for 'é' "
            f"({format_share(count, size)}).",
            advice="Fix the file, or set data.encoding=utf-8.",
            is_mistake=is_own and count >= MOJIBAKE_SHARE * size,
        )


def _check_forms(inspection: CorpusInspection) -> Iterator[Finding]:
    """Yield texts in the form of a program. Published corpora have their known forms."""
    size = inspection.num_rows
    escapes = "have escape sequences, such as '&amp;', '\\u00e9' or '\\n'"
    values = "are written as values of Python, such as \"['a', 'b']\""
    replacing = "Replace them by their characters, unless the model will read such texts."
    for count, share, form, advice in (
        (inspection.escaped, ESCAPED_SHARE, escapes, replacing),
        (inspection.printed, PRINTED_SHARE, values, "Write the texts themselves."),
    ):
        if count and count >= share * size and not inspection.is_published:
            message = f"{count:,} of {size:,} texts {form} ({format_share(count, size)})."
            yield Finding(kind="escapes", message=message, advice=advice, is_mistake=False)


def _check_clients(inspection: CorpusInspection) -> Iterator[Finding]:
    for text in () if inspection.is_published else inspection.client_doubts:
        yield Finding("clients", text, "", is_mistake=False)


def _check_dropped(inspection: CorpusInspection) -> Iterator[Finding]:
    report = inspection.report
    reasons = {reason: count for reason, count in report.drop_counts.items() if reason != EMPTY_LINES}
    if reasons:
        count, size = sum(reasons.values()), report.num_rows - report.drop_counts.get(EMPTY_LINES, 0)
        counts = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        yield Finding(
            kind="dropped",
            message=f"{count:,} of {size:,} rows were left out ({format_share(count, size)}): {counts}.",
            advice="Check these rows.",
            is_mistake=not inspection.is_published and count >= DROPPED_SHARE * size,
        )


def _check_duplicates(inspection: CorpusInspection) -> Iterator[Finding]:
    train = inspection.train
    if train.rows >= MIN_ROWS and train.duplicates >= DUPLICATE_SHARE * train.rows:
        yield Finding(
            kind="duplicates",
            message=f"{train.duplicates:,} of {train.rows:,} training rows repeat an earlier row "
            f"({format_share(train.duplicates, train.rows)}).",
            advice="Remove them if they were copied by accident.",
            is_mistake=False,
        )
    count, size = inspection.contradictions, inspection.num_rows
    if inspection.task in ("classification", "tagging") and size >= MIN_ROWS and count >= CONTRADICTION_SHARE * size:
        yield Finding(
            kind="contradictions",
            message=f"{count:,} texts occur with different labels.",
            advice="Check how the rows were labeled.",
            is_mistake=False,
        )


def _check_lengths(inspection: CorpusInspection) -> Iterator[Finding]:
    lengths = inspection.lengths
    if has_cut_texts(inspection):
        yield Finding(
            kind="cut",
            message=f"{lengths.num_longest:,} texts have exactly {lengths.longest:,} characters, the longest length.",
            advice="They were probably cut when the file was written.",
            is_mistake=False,
        )
    if inspection.task == "tagging" and lengths.longest >= MAX_SENTENCE_LENGTH:
        yield Finding(
            kind="lengths",
            message=f"the longest sentence has {lengths.longest:,} characters.",
            advice="Check that empty lines separate the sentences.",
            is_mistake=False,
        )
    if lengths.longest >= max(MIN_OUTLIER_LENGTH, OUTLIER_FACTOR * lengths.median):
        yield Finding(
            kind="lengths",
            message=f"the longest text has {lengths.longest:,} characters, the median {lengths.median:,}.",
            advice="Check that it is one text: an unbalanced quote joins lines.",
            is_mistake=False,
        )


def has_cut_texts(inspection: CorpusInspection) -> bool:
    """True if many texts have the longest length: natural lengths differ."""
    lengths, min_rows = inspection.lengths, max(MIN_CUT_ROWS, CUT_SHARE * inspection.num_rows)
    return lengths.longest >= MIN_CUT_LENGTH and lengths.num_longest >= min_rows
