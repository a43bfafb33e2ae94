"""The formats of a user's own files. One table says what Motet reads; the command line and the guide show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.core.errors import DataError
from motet.datasets.arrow_files import read_arrow, read_parquet
from motet.datasets.compression import ARCHIVE_SUFFIXES, DECOMPRESSORS, strip_compression_suffix
from motet.datasets.data_file import DataFile
from motet.datasets.delimited_files import read_delimited
from motet.datasets.json_tables import read_json_file, read_json_lines
from motet.datasets.plain_text import read_text_lines, read_whole_text
from motet.datasets.raw_table import TableBuilder
from motet.datasets.review_files import FDU_FILE, MSR_FILE, read_fdu_mtl, read_msr_paraphrases, read_reviews
from motet.datasets.spreadsheet_files import read_spreadsheet
from motet.datasets.tagged_files import (
    SNIFFED_LINES,
    looks_like_conll,
    read_conll_file,
    read_gold_conll,
)
from motet.datasets.text_encoding import read_first_lines
from motet.datasets.text_layout import describe_layout, is_json, looks_like_columns, looks_like_header


@dataclass(frozen=True)
class FileFormat:
    """A format with the suffixes of its files. Files of one folder must all be of the same family."""

    name: str
    suffixes: tuple[str, ...]
    description: str
    family: str
    read: Callable[[DataFile, TableBuilder], None]


CSV = FileFormat(
    "csv", (".csv",), "comma-, semicolon-, tab- or |-separated, with quotation marks", "tables", read_delimited
)
TSV = FileFormat("tsv", (".tsv", ".tab"), "tab-separated; quotation marks are text", "tables", read_delimited)
JSON_LINES = FileFormat("json lines", (".jsonl", ".ndjson"), "one object per line", "tables", read_json_lines)
JSON = FileFormat("json", (".json",), "an array of objects, one object per line, or SQuAD", "tables", read_json_file)
PARQUET = FileFormat("parquet", (".parquet", ".pq"), "Parquet", "tables", read_parquet)
ARROW = FileFormat("arrow", (".arrow", ".feather", ".ipc"), "Arrow or Feather", "tables", read_arrow)
EXCEL = FileFormat("excel", (".xlsx", ".xlsm"), "one sheet of an Excel workbook", "tables", read_spreadsheet)
CONLL = FileFormat(
    "conll",
    (".conll", ".bio", ".iob", ".iob2", ".ner"),
    "a word and its tag per line; also with any other suffix",
    "tagged files",
    read_conll_file,
)
GOLD_CONLL = FileFormat("gold_conll", (".gold_conll",), "OntoNotes, CoNLL-2012", "tagged files", read_gold_conll)
REVIEW = FileFormat("review", (".review",), "Blitzer's product reviews", "reviews", read_reviews)
FDU_MTL = FileFormat("fdu-mtl", (), "FDU-MTL reviews: books.task.train", "reviews", read_fdu_mtl)
MSR = FileFormat("msr", (), "Microsoft's paraphrases: msr_paraphrase_train.txt", "pairs", read_msr_paraphrases)
TEXT = FileFormat("text", (".txt",), "one text per line", "texts", read_text_lines)
WHOLE_TEXT = FileFormat("text files", (), "a folder per label with one text per file", "texts", read_whole_text)
FORMATS = (CSV, TSV, JSON_LINES, JSON, PARQUET, ARROW, EXCEL, CONLL, GOLD_CONLL, REVIEW, FDU_MTL, MSR, TEXT, WHOLE_TEXT)

HDF5_SUFFIXES = (".h5", ".hdf5")
LOCAL_SUFFIXES = tuple(suffix for file_format in FORMATS for suffix in file_format.suffixes) + HDF5_SUFFIXES
COMPRESSION_SUFFIXES = tuple(DECOMPRESSORS)
SUPPORTED_FORMATS = ".csv, .jsonl, .parquet, .xlsx, .txt and others, also compressed (motet list formats)"
POINTER, MAX_POINTER_SIZE = b"version https://git-lfs.github.com", 1_000
_FORMAT_BY_SUFFIX = {suffix: file_format for file_format in FORMATS for suffix in file_format.suffixes}


def find_format(file: DataFile) -> FileFormat | None:
    """Determine the format of a file with many rows. Raise an error if the lines of a text file are probably no texts."""
    file_format = guess_format(file)
    if file_format is TEXT and file.options.task is None:
        _check_texts(file, read_first_lines(file.path, SNIFFED_LINES, file.options.encoding))
    return file_format


def guess_format(file: DataFile) -> FileFormat | None:
    """Determine the format of a file from its name; if that leaves a doubt, from its first lines."""
    name = strip_compression_suffix(file.path).name
    if MSR_FILE.fullmatch(name):
        return MSR
    if FDU_FILE.fullmatch(name):
        return FDU_MTL
    if name.endswith("gold_conll"):
        return GOLD_CONLL
    file_format = _FORMAT_BY_SUFFIX.get(file.suffix)
    if file_format is not None:
        _check_pointer(file)
    task = file.options.task
    if file_format is TEXT and task == "tagging":
        return CONLL
    if file_format in (CSV, TSV) and is_json(next(iter(read_first_lines(file.path, 1, file.options.encoding)), "")):
        raise DataError(f"{file.name}: its lines are JSON. Give the file the suffix .jsonl.")
    if file_format in (None, TEXT, TSV) and task in (None, "tagging"):
        lines = read_first_lines(file.path, SNIFFED_LINES, file.options.encoding)
        if looks_like_conll(lines, min_share=1.0 if file_format is TSV else 0.8):
            return CONLL
    return file_format


def _check_pointer(file: DataFile) -> None:
    """Raise an error for the few lines that stand for a file in a Git repository until `git lfs pull`."""
    if file.path.stat().st_size > MAX_POINTER_SIZE:
        return
    with file.path.open("rb") as stream:
        is_pointer = stream.read(len(POINTER)) == POINTER
    if is_pointer:
        raise DataError(f"{file.name}: the file is only a pointer of Git LFS. Fetch its content with: git lfs pull")


def _check_texts(file: DataFile, lines: Sequence[str]) -> None:
    """Raise an error if the lines of a text file are probably no texts."""
    if looks_like_columns(lines) or looks_like_header(lines, file.options.column_names):
        raise DataError(
            f"{file.name}: its lines have columns, like a table or words with tags that are not BIO. Set "
            "task.type=lm to read each line as a text, or task.type=tagging; give a table the suffix .csv or .tsv."
        )
    if layout := describe_layout(lines):
        raise DataError(f"{file.name}: its lines {layout}. To read each line as a text, set task.type=lm.")


def require_format(file: DataFile) -> FileFormat:
    file_format = find_format(file)
    if file_format is None:
        raise DataError(
            f"data.path: '{file.name}' has the suffix '{file.path.suffix}'; Motet reads {SUPPORTED_FORMATS}."
        )
    return file_format


def describe_formats() -> dict[str, str]:
    """Return the formats with their suffixes and descriptions, for `motet list`."""
    formats = {
        file_format.name: f"{file_format.description} ({', '.join(file_format.suffixes)})"
        if file_format.suffixes
        else file_format.description
        for file_format in FORMATS
    }
    return {
        **formats,
        "hdf5": f"a corpus that `motet data build` wrote, or FedNLP's data file ({', '.join(HDF5_SUFFIXES)})",
        "datasets": "a folder that Hugging Face datasets wrote with save_to_disk",
        "compressed": f"any of these ({', '.join(COMPRESSION_SUFFIXES)}), or in an archive ({', '.join(ARCHIVE_SUFFIXES)})",
    }
