"""The nine GLUE tasks. The dev set is the test set, because the test labels are not public."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.original_files import MISSING_COLUMNS, check_folder, find_file, read_columns
from motet.datasets.read_log import ReadLog
from motet.datasets.splits import Columns, build_corpus
from motet.datasets.text_files import read_lines

ENTAILMENT = {name: name for name in ("entailment", "not_entailment")}
NLI = {name: name for name in ("entailment", "neutral", "contradiction")}
GENRE_ALIASES = {"main-forum": "main-forums"}  # STS-B spells one genre differently in its training and dev files


@dataclass(frozen=True)
class GlueFormat:
    """The folder of a GLUE task, and the names of its columns."""

    folder: str
    text: str
    label: str
    labels: Mapping[str, str] = field(default_factory=dict)  # label in the file -> label in the corpus; empty: a score
    second: str | None = None
    domain: str | None = None
    dev: str = "dev"

    @property
    def columns(self) -> dict[str, str]:
        """Motet's column names and the names in the file."""
        target = "label" if self.labels else "score"
        names = {"text": self.text, "second": self.second, target: self.label, "domain": self.domain}
        return {name: file_name for name, file_name in names.items() if file_name is not None}


def glue_cola(folder: Path) -> Corpus:
    """GLUE CoLA: is a sentence acceptable English? Classification; domain = source. From gluebenchmark.com."""
    labels = {"0": "unacceptable", "1": "acceptable"}
    return _read_glue("glue-cola", folder, GlueFormat("CoLA", text="3", label="1", labels=labels, domain="0"))


def glue_sst2(folder: Path) -> Corpus:
    """GLUE SST-2: movie review phrases, positive or negative. Classification. From gluebenchmark.com."""
    labels = {"0": "negative", "1": "positive"}
    return _read_glue("glue-sst2", folder, GlueFormat("SST-2", text="sentence", label="label", labels=labels))


def glue_mrpc(folder: Path) -> Corpus:
    """GLUE MRPC: sentence pairs from news, paraphrases or not. Pair classification. From gluebenchmark.com."""
    labels = {"0": "not_equivalent", "1": "equivalent"}
    file_format = GlueFormat("MRPC", text="#1 String", second="#2 String", label="Quality", labels=labels)
    return _read_glue("glue-mrpc", folder, file_format)


def glue_stsb(folder: Path) -> Corpus:
    """GLUE STS-B: sentence pairs, similarity from 0 to 5. Regression; domain = genre. From gluebenchmark.com."""
    file_format = GlueFormat("STS-B", text="sentence1", second="sentence2", label="score", domain="genre")
    return _read_glue("glue-stsb", folder, file_format)


def glue_qqp(folder: Path) -> Corpus:
    """GLUE QQP: question pairs from Quora, duplicates or not. Pair classification. From gluebenchmark.com."""
    labels = {"0": "not_duplicate", "1": "duplicate"}
    file_format = GlueFormat("QQP", text="question1", second="question2", label="is_duplicate", labels=labels)
    return _read_glue("glue-qqp", folder, file_format)


def glue_mnli(folder: Path) -> Corpus:
    """GLUE MNLI, test on the training genres. Pair classification; domain = genre. From gluebenchmark.com."""
    return _read_mnli("glue-mnli", folder, "dev_matched")


def glue_mnli_mm(folder: Path) -> Corpus:
    """GLUE MNLI, test on other genres. Pair classification; domain = genre. From gluebenchmark.com."""
    return _read_mnli("glue-mnli-mm", folder, "dev_mismatched")


def glue_qnli(folder: Path) -> Corpus:
    """GLUE QNLI: does a sentence answer the question? Pair classification. From gluebenchmark.com."""
    file_format = GlueFormat("QNLI", text="question", second="sentence", label="label", labels=ENTAILMENT)
    return _read_glue("glue-qnli", folder, file_format)


def glue_rte(folder: Path) -> Corpus:
    """GLUE RTE: does a text entail the hypothesis? Pair classification. From gluebenchmark.com."""
    file_format = GlueFormat("RTE", text="sentence1", second="sentence2", label="label", labels=ENTAILMENT)
    return _read_glue("glue-rte", folder, file_format)


def glue_wnli(folder: Path) -> Corpus:
    """GLUE WNLI: what does a pronoun refer to? Pair classification. From gluebenchmark.com."""
    labels = {"0": "not_entailment", "1": "entailment"}
    file_format = GlueFormat("WNLI", text="sentence1", second="sentence2", label="label", labels=labels)
    return _read_glue("glue-wnli", folder, file_format)


def _read_mnli(name: str, folder: Path, dev: str) -> Corpus:
    file_format = GlueFormat(
        "MNLI", text="sentence1", second="sentence2", label="gold_label", labels=NLI, domain="genre", dev=dev
    )
    return _read_glue(name, folder, file_format)


def _read_glue(name: str, folder: Path, file_format: GlueFormat) -> Corpus:
    task_folder = find_file(check_folder(name, folder), file_format.folder) or folder
    files = [path for path in (task_folder / "train.tsv", task_folder / f"{file_format.dev}.tsv") if path.exists()]
    if not files:
        raise DataError(
            f"{name}: there is no '{file_format.folder}/train.tsv' or "
            f"'{file_format.folder}/{file_format.dev}.tsv' in {folder}; "
            f"unpack {file_format.folder}.zip from gluebenchmark.com there."
        )
    log = ReadLog(folder)
    splits = [_read_split(name, path, file_format, log) for path in files]
    task = "classification" if file_format.labels else "regression"
    return build_corpus(name, task, splits[0], splits[1] if len(splits) > 1 else None, log)


def _read_split(name: str, path: Path, file_format: GlueFormat, log: ReadLog) -> Columns:
    columns: Columns = {column: [] for column in file_format.columns}
    for number, row in _read_rows(name, path, file_format, log):
        if not row["text"] or not row.get("second", "-"):
            log.drop("rows with empty text", path, number)
            continue
        if file_format.labels and row["label"] not in file_format.labels:
            if row["label"] == "-":  # MNLI: the annotators did not agree
                log.drop("rows without a gold label", path, number)
                continue
            raise DataError(
                f"{path.name}, line {number}: label '{row['label']}' is not one of {', '.join(file_format.labels)}. "
                "Use the original file."
            )
        target = file_format.labels[row["label"]] if file_format.labels else _parse_score(path, number, row["score"])
        for column, value in row.items():
            columns[column].append(target if column in ("label", "score") else GENRE_ALIASES.get(value, value))
    return columns


def _read_rows(name: str, path: Path, file_format: GlueFormat, log: ReadLog) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line numbers and rows. CoLA's files have no header, so its columns are numbers."""
    file_names = list(file_format.columns.values())
    if file_format.text.isdigit():
        rows = _read_indexed_columns(path, [int(file_name) for file_name in file_names], log)
    else:
        rows = read_columns(path, file_names, log, name, tabs=True)
    for number, values in rows:
        yield number, dict(zip(file_format.columns, (value.strip() for value in values), strict=True))


def _read_indexed_columns(path: Path, indices: list[int], log: ReadLog) -> Iterator[tuple[int, tuple[str, ...]]]:
    for number, line in read_lines(path, log):
        row = line.split("\t")
        if len(row) > max(indices):
            yield number, tuple(row[i] for i in indices)
        elif line.strip():
            log.drop(MISSING_COLUMNS, path, number)


def _parse_score(path: Path, line: int, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise DataError(
            f"{path.name}, line {line}: score '{value}' is not a number from 0 to 5. Download the file again."
        ) from None
