"""Fuzz targets for readers. A broken file gives a corpus or a sentence: never a traceback, never a silent loss."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

from motet.core.errors import MotetError
from motet.datasets.corpus import Corpus
from motet.datasets.corpus_readers import CORPUS_READERS
from motet.datasets.load_corpus import DataConfig, read_corpus
from motet.datasets.text_files import BYTE_ORDER_MARK
from tests.fuzz.corpus_folders import FOLDERS
from tests.own_files import BINARY_FORMATS, COMPRESSIONS, TEXT_FORMATS, to_zip

ROWS = [
    {"text": 'one, "two"', "label": "a", "client": "x"},
    {"text": "three\tfour é", "label": "b", "client": "y"},
    {"text": "", "label": "a", "client": "x"},
]
SQUAD = dict(FOLDERS[[name for name, _ in FOLDERS].index("squad")][1])["dev-v1.1.json"]
REVIEW = "<review>\n<rating>5.0</rating>\n<review_text>\nGood.\n</review_text>\n</review>\n"
GOLD = (
    "#begin document (bc/x/00/x_0000); part 000\nbc/x 0 0 Ann NNP * - - - - (PERSON) -\nbc/x 0 1 is V * - - - - * -\n"
)
MSR = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\tA b.\tB a.\n"
TSV_ROWS = [{name: value.replace("\t", " ") for name, value in row.items()} for row in ROWS]
SEEDS: list[tuple[str, bytes]] = [  # name of a file, and its content
    *((f"t{kind.split()[0]}", write(TSV_ROWS if kind == ".tsv" else ROWS).encode()) for kind, write in TEXT_FORMATS.items()),
    *((f"t{kind}", write([row for row in ROWS if row["text"]])) for kind, write in BINARY_FORMATS.items()),
    ("t.json", SQUAD.encode()),
    ("t.jsonl", b'{"words": ["a", "b"], "tags": ["O", "B-X"]}\n{"words": ["c"], "tags": ["I-X"]}\n'),
    ("t.jsonl", b'{"context": "a b", "question": "?", "answers": {"text": ["b"], "answer_start": [2]}}\n'),
    ("t.csv", b"text,score\na,1.5\nb,-2\n"),
    ("t.jsonl", b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' * 2),
    ("t.jsonl", b'{"prompt": "a", "completion": "b", "closed": true, "choices": ["b", "c"]}\n' * 2),
    ("t.jsonl", b'{"prompt": "a", "chosen": "b", "rejected": "c"}\n' * 2),
    ("t.csv", b'instruction,input,output\na,b,c\nd,,"e"\n'),
    ("t.conll", b"Ann\tB-PER\nis\tO\n\nOslo\tB-LOC\n"),
    ("t.txt", "one\ntwo\u2028\n\nthree é".encode()),
    ("t.review", REVIEW.encode()),
    ("t.gold_conll", GOLD.encode()),
    ("books.task.train", b"1\tgood\n0\tbad\n"),
    ("msr_paraphrase_train.txt", MSR.encode()),
    *((f"t.jsonl{suffix}", compress(b'{"text": "a", "label": "x"}\n' * 3)) for suffix, compress in COMPRESSIONS.items()),
    ("t.zip", to_zip(b"text,label\na,x\nb,y\n", "t.csv")),
]  # fmt: skip
NAMES = sorted({name for name, _ in SEEDS})


def fuzz_own_files(data: bytes) -> None:
    """The first byte selects the name of a file, the rest is its content."""
    if not data:
        return
    name = NAMES[data[0] % len(NAMES)]
    with tempfile.TemporaryDirectory(prefix="motet-fuzz-") as folder:
        path = Path(folder) / name
        path.write_bytes(data[1:])
        try:
            corpus = read_corpus(DataConfig(path=str(path)))
        except MotetError:
            return
    check_corpus(corpus)
    expected = count_rows(name, data[1:], corpus)
    if expected not in (None, corpus.report.num_rows):
        raise AssertionError(f"{name} has {expected} rows, but {corpus.report.num_rows} were read")


def check_corpus(corpus: Corpus) -> None:
    """Check that all values can be used, and that the report counts all rows."""
    if corpus.report.num_rows != len(corpus) + corpus.report.num_dropped:
        raise AssertionError("the report does not count all rows")
    if not corpus.fingerprint:
        raise AssertionError("the corpus has no fingerprint")


def count_rows(name: str, content: bytes, corpus: Corpus) -> int | None:
    """Count the rows of a file in another way; None if there is none."""
    encoding = corpus.report.files[0].encoding
    if (
        corpus.report.replaced_bytes
        or corpus.task == "tagging"
        or not name.endswith((".jsonl", ".tsv", ".csv", ".txt"))
    ):
        return None
    text = content.decode(encoding, "replace").removeprefix(BYTE_ORDER_MARK)  # columns that are not read may be invalid
    lines = text.split("\n")
    if name.endswith((".csv", ".tsv")) and "\r" in text.replace("\r\n", ""):
        return None
    if name.endswith(".csv"):
        if any("delimiter" in note for note in corpus.report.notes):
            return None
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if any(map(str.strip, row))]
        return len(rows) - 1 - text.lower().startswith("sep=")
    if name.startswith("msr"):
        return None
    if name.endswith(".txt"):
        return len(lines) - (lines[-1] == "")
    is_tsv = name.endswith(".tsv")  # a line of tabs is a row of empty fields there; other blank lines are no rows
    return sum(bool(line.strip()) or (is_tsv and "\t" in line) for line in lines) - is_tsv


def fuzz_corpora(data: bytes) -> None:
    """The first byte selects a corpus, the second one of its files; the rest is the content of this file."""
    if len(data) < 2:
        return
    name, files = FOLDERS[data[0] % len(FOLDERS)]
    changed = list(files)[data[1] % len(files)]
    with tempfile.TemporaryDirectory(prefix="motet-fuzz-") as folder:
        for file, text in files.items():
            path = Path(folder) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data[2:] if file == changed else text.encode())
        try:
            corpus = CORPUS_READERS[name](Path(folder))
        except MotetError:
            return
    check_corpus(corpus)


def make_own_file_seeds() -> list[bytes]:
    return [bytes([NAMES.index(name)]) + content for name, content in SEEDS]


def make_corpus_seeds() -> list[bytes]:
    return [
        bytes([i, k]) + text.encode() for i, (_, files) in enumerate(FOLDERS) for k, text in enumerate(files.values())
    ]
