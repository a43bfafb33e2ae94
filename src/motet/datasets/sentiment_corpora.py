"""Opinions: SST-2, IMDB, Sentiment140, and reviews of products at Amazon."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.original_files import (
    MISSING_COLUMNS,
    check_folder,
    find_file,
    list_folder,
    parse_csv_line,
    read_columns,
    read_lines,
    read_text,
    require_file,
    walk_folders,
)
from motet.datasets.splits import Columns, add_column, build_corpus, concatenate, describe_source

BINARY = {"0": "negative", "1": "positive"}
TREE = re.compile(r"\s*\(([0-4])\s")
LEAF = re.compile(r"\([0-4] ([^()]+)\)")
POLARITY = {"0": "negative", "2": None, "4": "positive"}
STARS = {"0": "neutral", "1": "positive", "2": "negative"}
EMPTY = "rows with empty text"


def sst2(folder: Path) -> Corpus:
    """Sentences from film reviews, positive or negative (Stanford Sentiment Treebank: its trees, or tsv of sentence, label)."""
    hint = "put train.tsv and test.tsv (sentence, tab, label) or the treebank's trees (train.txt, test.txt) there"
    train = require_file("sst2", folder, "train.tsv", "train.txt", hint=hint)
    ending = ".tsv" if ".tsv" in train.name else ".txt"
    tests = [find_file(folder, part + ending) for part in ("test", "dev")]
    test = next((path for path in tests if path is not None and not _unlabelled(path)), None)
    left_out: Counter[str] = Counter()
    source = [path for path in (train, test) if path is not None]
    rows = [_sentences(path, left_out) for path in source]
    return build_corpus("sst2", "classification", rows[0], rows[1] if test else None, describe_source(source, left_out))


def _unlabelled(path: Path) -> bool:
    """GLUE's test file has an index where others have a label."""
    return next(read_lines(path), (0, ""))[1].startswith("index\t")


def _sentences(path: Path, left_out: Counter[str]) -> Columns:
    rows: Columns = {"text": [], "label": []}
    for number, line in read_lines(path):
        if not line.strip() or (number == 1 and line.startswith("sentence\t")):
            continue
        tree = TREE.match(line)
        if tree:
            text = " ".join(LEAF.findall(line))
            label = {"0": "negative", "1": "negative", "3": "positive", "4": "positive"}.get(tree[1])
        else:
            text, _, said = line.rpartition("\t")
            label = BINARY.get(said.strip())
            if label is None or not text:
                raise DataError(
                    f"{path.name}, line {number}: '{line[:60]}' is neither a sentence, a tab and 0 or 1 nor a tree such as "
                    "'(3 (2 Good) (2 film))'; mend the line or fetch the file again."
                )
        if label is None:
            left_out["neutral sentences"] += 1
            continue
        rows["text"].append(text.strip())
        rows["label"].append(label)
    return rows


def imdb(folder: Path) -> Corpus:
    """Reviews of films, positive or negative (aclImdb_v1.tar.gz of Maas et al., 2011)."""
    hint = "unpack aclImdb_v1.tar.gz there"
    train = require_file("imdb", folder, "aclImdb/train", "train", hint=hint)
    test = require_file("imdb", folder, "aclImdb/test", "test", hint=hint)
    return build_corpus(
        "imdb",
        "classification",
        _reviews(train, hint),
        _reviews(test, hint),
        describe_source(["aclImdb/train", "aclImdb/test"]),
    )


def _reviews(folder: Path, hint: str) -> Columns:
    rows: Columns = {"text": [], "label": []}
    for short, label in (("neg", "negative"), ("pos", "positive")):
        for path in list_folder(require_file("imdb", folder, short, hint=hint)):
            if path.suffix == ".txt":
                rows["text"].append(read_text(path).replace("<br />", " ").strip())
                rows["label"].append(label)
    return rows


def sentiment140(folder: Path) -> Corpus:
    """Tweets, positive or negative, neutral ones left out; client = user (trainingandtestdata.zip of Go et al., 2009)."""
    name = "training.1600000.processed.noemoticon.csv"
    train = require_file("sentiment140", folder, name, "train.csv", hint="unpack trainingandtestdata.zip there")
    test = find_file(folder, "testdata.manual.2009.06.14.csv", "test.csv")
    left_out: Counter[str] = Counter()
    source = [path for path in (train, test) if path is not None]
    rows = [_tweets(path, left_out) for path in source]
    return build_corpus(
        "sentiment140", "classification", rows[0], rows[1] if test else None, describe_source(source, left_out)
    )


def _tweets(path: Path, left_out: Counter[str]) -> Columns:
    """Rows of polarity, id, date, query, user, text without a header."""
    texts, labels, users = [], [], []
    neutral = broken = 0
    for number, line in read_lines(path, "latin-1"):
        # Every field is quoted, so cutting at the quotes is exact; faster than csv, and stray quotes in a text do no harm.
        row = line[1:-1].split('","', 5) if line[:1] == line[-1:] == '"' else parse_csv_line(line)
        if len(row) != 6:
            broken += bool(line.strip())
            continue
        if row[0] not in POLARITY:
            raise DataError(
                f"{path.name}, line {number}: polarity '{row[0]}' is none of 0, 2, 4; give the original file."
            )
        label = POLARITY[row[0]]
        if label is None:
            neutral += 1
            continue
        texts.append(row[5].replace('""', '"').strip())
        labels.append(label)
        users.append(row[4])
    left_out.update({"neutral tweets": neutral, MISSING_COLUMNS: broken})
    return {"text": texts, "label": labels, "client": users}


def amazon(folder: Path) -> Corpus:
    """Reviews of products: neutral, positive, negative; domain = department (AdaFD's files; dev if there is no train)."""
    left_out: Counter[str] = Counter()
    trains, tests = [], []
    for place in walk_folders(check_folder("amazon", folder)):
        train = next((place / name for name in ("train.csv", "dev.csv") if (place / name).exists()), None)
        if train is not None and (place / "test.csv").exists():
            trains.append(add_column(_products(train, left_out), "domain", place.name))
            tests.append(add_column(_products(place / "test.csv", left_out), "domain", place.name))
    if not trains:
        raise DataError(
            f"amazon: there is no folder with test.csv and train.csv or dev.csv in {folder}; "
            "expected one a department, such as automotive/test.csv."
        )
    source = describe_source([rows["domain"][0] for rows in trains if rows["domain"]], left_out)
    return build_corpus("amazon", "classification", concatenate(trains), concatenate(tests), source)


def _products(path: Path, left_out: Counter[str]) -> Columns:
    rows: Columns = {"text": [], "label": []}
    for number, (said, text) in read_columns(path, ("label", "text"), left_out, "amazon"):
        if not text.strip():
            left_out[EMPTY] += 1
            continue
        if said not in STARS:
            raise DataError(
                f"{path.parent.name}/{path.name}, line {number}: label '{said}' is none of 0, 1, 2; give the original file."
            )
        rows["text"].append(text.strip())
        rows["label"].append(STARS[said])
    return rows
