"""The nine tasks of GLUE, from its own tsv files; its dev part is the test part, since its test labels are secret."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.original_files import MISSING_COLUMNS, check_folder, find_file, read_columns, read_lines
from motet.datasets.splits import Columns, build_corpus, describe_source

ENTAILMENT = {name: name for name in ("entailment", "not_entailment")}
SAME_GENRE = {"main-forum": "main-forums"}  # STS-B: the first in its training part, the second in its dev part
THREE_WAY = {name: name for name in ("entailment", "neutral", "contradiction")}


@dataclass(frozen=True)
class GlueFormat:
    """What a task's files are called and what their columns mean."""

    folder: str
    text: str
    label: str
    labels: Mapping[str, str] = field(default_factory=dict)  # empty: a score
    second: str | None = None
    domain: str | None = None
    dev: str = "dev"

    @property
    def columns(self) -> dict[str, str]:
        """Our names and theirs."""
        value = "label" if self.labels else "score"
        named = {"text": self.text, "second": self.second, value: self.label, "domain": self.domain}
        return {ours: theirs for ours, theirs in named.items() if theirs is not None}


def glue_cola(folder: Path) -> Corpus:
    """Sentences that are acceptable English or not, from books of linguistics (GLUE: CoLA); domain = book."""
    form = GlueFormat(
        "CoLA", "3", "1", {"0": "unacceptable", "1": "acceptable"}, domain="0"
    )  # no header: columns by number
    return _glue("glue-cola", folder, form)


def glue_sst2(folder: Path) -> Corpus:
    """Phrases and sentences from film reviews, positive or negative (GLUE: SST-2)."""
    return _glue("glue-sst2", folder, GlueFormat("SST-2", "sentence", "label", {"0": "negative", "1": "positive"}))


def glue_mrpc(folder: Path) -> Corpus:
    """Pairs of sentences from the news that mean the same or not (GLUE: MRPC)."""
    labels = {"0": "not_equivalent", "1": "equivalent"}
    return _glue("glue-mrpc", folder, GlueFormat("MRPC", "#1 String", "Quality", labels, "#2 String"))


def glue_stsb(folder: Path) -> Corpus:
    """Pairs of sentences and how alike they are, from 0 to 5 (GLUE: STS-B); domain = genre."""
    return _glue("glue-stsb", folder, GlueFormat("STS-B", "sentence1", "score", {}, "sentence2", "genre"))


def glue_qqp(folder: Path) -> Corpus:
    """Pairs of questions on Quora that ask the same or not (GLUE: QQP)."""
    labels = {"0": "not_duplicate", "1": "duplicate"}
    return _glue("glue-qqp", folder, GlueFormat("QQP", "question1", "is_duplicate", labels, "question2"))


def glue_mnli(folder: Path) -> Corpus:
    """Pairs of a premise and a hypothesis, tested on the genres of training (GLUE: MNLI, dev matched); domain = genre."""
    form = GlueFormat("MNLI", "sentence1", "gold_label", THREE_WAY, "sentence2", "genre", "dev_matched")
    return _glue("glue-mnli", folder, form)


def glue_mnli_mm(folder: Path) -> Corpus:
    """Pairs of a premise and a hypothesis, tested on other genres (GLUE: MNLI, dev mismatched); domain = genre."""
    form = GlueFormat("MNLI", "sentence1", "gold_label", THREE_WAY, "sentence2", "genre", "dev_mismatched")
    return _glue("glue-mnli-mm", folder, form)


def glue_qnli(folder: Path) -> Corpus:
    """Pairs of a question and a sentence that answers it or not (GLUE: QNLI)."""
    return _glue("glue-qnli", folder, GlueFormat("QNLI", "question", "label", ENTAILMENT, "sentence"))


def glue_rte(folder: Path) -> Corpus:
    """Pairs of a text and a hypothesis that follows from it or not (GLUE: RTE)."""
    return _glue("glue-rte", folder, GlueFormat("RTE", "sentence1", "label", ENTAILMENT, "sentence2"))


def glue_wnli(folder: Path) -> Corpus:
    """Pairs of a sentence with a pronoun and one with what it may stand for (GLUE: WNLI)."""
    labels = {"0": "not_entailment", "1": "entailment"}
    return _glue("glue-wnli", folder, GlueFormat("WNLI", "sentence1", "label", labels, "sentence2"))


def _glue(name: str, folder: Path, form: GlueFormat) -> Corpus:
    own = find_file(check_folder(name, folder), form.folder) or folder
    files = [own / f"{part}.tsv" for part in ("train", form.dev)]
    there = [path for path in files if path.exists()]
    if not there:
        raise DataError(
            f"{name}: there is no '{form.folder}/train.tsv' or '{form.folder}/{form.dev}.tsv' in {folder}; "
            f"unpack {form.folder}.zip of gluebenchmark.com there."
        )
    left_out: Counter[str] = Counter()
    rows = [_rows(name, path, form, left_out) for path in there]
    task = "classification" if form.labels else "regression"
    source = describe_source([f"{form.folder}/{path.name}" for path in there], left_out)
    return build_corpus(name, task, rows[0], rows[1] if rows[1:] else None, source)


def _rows(name: str, path: Path, form: GlueFormat, left_out: Counter[str]) -> Columns:
    columns = form.columns
    rows: Columns = {ours: [] for ours in columns}
    theirs = list(columns.values())
    lines = _numbered(path, left_out) if form.text.isdigit() else read_columns(path, theirs, left_out, name, tabs=True)
    for number, values in lines:
        row = dict(zip(columns, (value.strip() for value in values), strict=True))
        if not row["text"] or not row.get("second", "-"):
            left_out["rows with empty text"] += 1
            continue
        if form.labels and row["label"] not in form.labels:
            if row["label"] == "-":  # MNLI: the annotators did not agree
                left_out["rows without a gold label"] += 1
                continue
            known = ", ".join(form.labels)
            raise DataError(
                f"{path.name}, line {number}: label '{row['label']}' is none of {known}; give the original file."
            )
        value = form.labels[row["label"]] if form.labels else _score(path, number, row["score"])
        for ours, text in row.items():
            rows[ours].append(value if ours in ("label", "score") else SAME_GENRE.get(text, text))
    return rows


def _numbered(path: Path, left_out: Counter[str]) -> list[tuple[int, tuple[str, ...]]]:
    """CoLA's columns: book, label, the author's mark, sentence; here sentence, label, book."""
    made: list[tuple[int, tuple[str, ...]]] = []
    for number, line in read_lines(path):
        row = line.split("\t")
        if len(row) >= 4:
            made.append((number, (row[3], row[1], row[0])))
        else:
            left_out[MISSING_COLUMNS] += bool(line.strip())
    return made


def _score(path: Path, line: int, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise DataError(
            f"{path.name}, line {line}: score '{value}' is no number from 0 to 5; fetch the file again."
        ) from None
