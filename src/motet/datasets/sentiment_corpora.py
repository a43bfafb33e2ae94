"""Sentiment classification: SST-2, IMDB, Sentiment140 and Amazon reviews."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.original_files import (
    MISSING_COLUMNS,
    check_folder,
    find_in_folder,
    list_folder,
    parse_csv_line,
    read_columns,
    require_file_set,
    walk_folders,
)
from motet.datasets.read_log import ReadLog
from motet.datasets.splits import Columns, add_column, build_corpus, concatenate
from motet.datasets.text_encoding import TextEncoding
from motet.datasets.text_files import read_lines, read_text

SST2_LABELS = {"0": "negative", "1": "positive"}
TREE_LABELS = {"0": "negative", "1": "negative", "2": None, "3": "positive", "4": "positive"}  # None: neutral
TREE_ROOT = re.compile(r"\s*\(([0-4])\s")
TREE_LEAF = re.compile(r"\([0-4] ([^()]+)\)")
TWEET_LABELS = {"0": "negative", "2": None, "4": "positive"}
AMAZON_LABELS = {"0": "neutral", "1": "positive", "2": "negative"}

FileReader = Callable[[Path, ReadLog], Columns]


def sst2(folder: Path) -> Corpus:
    """Movie review sentences, positive or negative. Classification. From the Stanford Sentiment Treebank."""
    hint = "put train.tsv and test.tsv (sentence, tab, label) or the treebank's trees (train.txt, test.txt) there"
    (train,) = require_file_set("sst2", folder, ("train.tsv", "train.txt"), hint=hint)
    suffix = ".tsv" if ".tsv" in train.name else ".txt"
    candidates = [find_in_folder(train.parent, split + suffix) for split in ("test", "dev")]
    log = ReadLog(folder)
    test = next((path for path in candidates if path is not None and not _has_hidden_labels(path, log)), None)
    return _build_from_files("sst2", train, test, _read_sentences, log)


def _build_from_files(name: str, train: Path, test: Path | None, read: FileReader, log: ReadLog) -> Corpus:
    files = [path for path in (train, test) if path is not None]
    splits = [read(path, log) for path in files]
    return build_corpus(name, "classification", splits[0], splits[1] if test else None, log)


def _has_hidden_labels(path: Path, log: ReadLog) -> bool:
    """True for GLUE's test file, which has an index instead of a label."""
    return next(read_lines(path, log), (0, ""))[1].startswith("index\t")


def _read_sentences(path: Path, log: ReadLog) -> Columns:
    columns: Columns = {"text": [], "label": []}
    for number, line in read_lines(path, log):
        if not line.strip() or (number == 1 and line.startswith("sentence\t")):
            continue
        tree = TREE_ROOT.match(line)
        if tree:
            text, label = " ".join(TREE_LEAF.findall(line)), TREE_LABELS[tree[1]]
        else:
            text, _, value = line.rpartition("\t")
            label = SST2_LABELS.get(value.strip())
            if label is None or not text:
                raise DataError(
                    f"{path.name}, line {number}: '{line[:60]}' is neither a sentence, a tab and 0 or 1, nor a tree "
                    "like '(3 (2 Good) (2 film))'. Fix the line or download the file again."
                )
        if label is None:
            log.drop("neutral sentences", path, number)
            continue
        columns["text"].append(text.strip())
        columns["label"].append(label)
    return columns


def imdb(folder: Path) -> Corpus:
    """Movie reviews, positive or negative. Classification. From Maas et al., 2011: aclImdb_v1.tar.gz."""
    hint = "unpack aclImdb_v1.tar.gz there"
    names = ("aclImdb/train", "train"), ("aclImdb/test", "test")
    train, test = require_file_set("imdb", folder, *names, hint=hint)
    log = ReadLog(folder)
    return build_corpus("imdb", "classification", _read_reviews(train, log, hint), _read_reviews(test, log, hint), log)


def _read_reviews(folder: Path, log: ReadLog, hint: str) -> Columns:
    columns: Columns = {"text": [], "label": []}
    for subfolder, label in (("neg", "negative"), ("pos", "positive")):
        for path in list_folder(require_file_set("imdb", folder, [subfolder], hint=hint)[0]):
            if path.suffix == ".txt":
                columns["text"].append(read_text(path, log).replace("<br />", " ").strip())
                columns["label"].append(label)
    return columns


def sentiment140(folder: Path) -> Corpus:
    """Tweets, positive or negative. Classification; client = user. From Go et al., 2009: trainingandtestdata.zip."""
    name = "training.1600000.processed.noemoticon.csv"
    hint = "unpack trainingandtestdata.zip there"
    (train,) = require_file_set("sentiment140", folder, (name, "train.csv"), hint=hint)
    test = find_in_folder(train.parent, "testdata.manual.2009.06.14.csv", "test.csv")
    return _build_from_files("sentiment140", train, test, _read_tweets, ReadLog(folder))


def _read_tweets(path: Path, log: ReadLog) -> Columns:
    """Read rows of polarity, id, date, query, user and text, without a header."""
    texts, labels, users = [], [], []
    for number, line in read_lines(path, log, TextEncoding("latin-1", "the encoding of this corpus")):
        # Every field is quoted, so splitting at '","' is exact. It is faster than csv and tolerates stray quotes.
        row = line[1:-1].split('","', 5) if line[:1] == line[-1:] == '"' else parse_csv_line(line)
        if len(row) != 6:
            log.drop(MISSING_COLUMNS, path, number, count=bool(line.strip()))
            continue
        if row[0] not in TWEET_LABELS:
            raise DataError(
                f"{path.name}, line {number}: polarity '{row[0]}' is not one of 0, 2, 4. Use the original file."
            )
        label = TWEET_LABELS[row[0]]
        if label is None:
            log.drop("neutral tweets", path, number)
            continue
        texts.append(row[5].replace('""', '"').strip())
        labels.append(label)
        users.append(row[4])
    return {"text": texts, "label": labels, "client": users}


def amazon(folder: Path) -> Corpus:
    """Product reviews, three classes. Classification; domain = department. From AdaFD: a folder per department."""
    log = ReadLog(folder)
    train_parts, test_parts = [], []
    for department in walk_folders(check_folder("amazon", folder)):
        train = next((department / name for name in ("train.csv", "dev.csv") if (department / name).exists()), None)
        test = department / "test.csv"
        if train is not None and test.exists():
            train_parts.append(add_column(_read_amazon(train, log), "domain", department.name))
            test_parts.append(add_column(_read_amazon(test, log), "domain", department.name))
    if not train_parts:
        raise DataError(
            f"amazon: there is no folder with test.csv and train.csv or dev.csv in {folder}; "
            "expected one per department, such as automotive/test.csv."
        )
    return build_corpus("amazon", "classification", concatenate(train_parts), concatenate(test_parts), log)


def _read_amazon(path: Path, log: ReadLog) -> Columns:
    columns: Columns = {"text": [], "label": []}
    for number, (label, text) in read_columns(path, ("label", "text"), log, "amazon"):
        if not text.strip():
            log.drop("rows with empty text", path, number)
            continue
        if label not in AMAZON_LABELS:
            raise DataError(
                f"{path.parent.name}/{path.name}, line {number}: label '{label}' is not one of 0, 1, 2. "
                "Use the original file."
            )
        columns["text"].append(text.strip())
        columns["label"].append(AMAZON_LABELS[label])
    return columns
