"""Texts by topic: 20 Newsgroups and AG News."""

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
    read_lines,
    read_text,
    require_file,
)
from motet.datasets.splits import Columns, build_corpus, describe_source

AG_LABELS = ("World", "Sports", "Business", "Sci/Tech")


def twenty_news(folder: Path) -> Corpus:
    """Posts of 20 newsgroups, split by date, headers kept (20news-bydate.tar.gz of qwone.com/~jason/20Newsgroups)."""
    hint = "unpack 20news-bydate.tar.gz there"
    parts = [require_file("20news", folder, f"20news-bydate-{part}", hint=hint) for part in ("train", "test")]
    return build_corpus("20news", "classification", _posts(parts[0]), _posts(parts[1]), describe_source(parts))


def _posts(folder: Path) -> Columns:
    rows: Columns = {"text": [], "label": []}
    for group in list_folder(folder):
        for post in list_folder(group) if group.is_dir() else ():
            if post.is_file() and not post.name.startswith("."):
                rows["text"].append(read_text(post, "latin-1").replace("\n", " ").strip())
                rows["label"].append(group.name)
    return rows


def ag_news(folder: Path) -> Corpus:
    """News in brief on four topics, without their titles (ag_news_csv of Zhang, Zhao and LeCun, 2015)."""
    hint = "unpack ag_news_csv.tgz there"
    train = require_file("agnews", folder, "train.csv", "train_5k.csv", hint=hint)
    test = require_file("agnews", folder, "test.csv", hint=hint)
    classes = find_file(check_folder("agnews", folder), "classes.txt")
    labels = [line.strip() for _, line in read_lines(classes) if line.strip()] if classes else list(AG_LABELS)
    left_out: Counter[str] = Counter()
    together = _width(train) == 2
    rows = [_briefs(path, labels, together, left_out) for path in (train, test)]
    # A training file of two columns has title and text in one: the test rows are then made to look alike.
    noted: list[Path | str] = ["titles kept, since the training file has them in its texts"] if together else []
    return build_corpus("agnews", "classification", rows[0], rows[1], describe_source([train, test, *noted], left_out))


def _width(path: Path) -> int:
    return next((len(parse_csv_line(line)) for _, line in read_lines(path) if line.strip()), 0)


def without_backslashes(text: str) -> str:
    """Between two words a backslash stands for a line break and gives way to a blank; elsewhere, as in \\$50, for nothing."""
    return re.sub(r"(?<=\S)\\+(?=\S)", " ", text).replace("\\", "").strip()


def _briefs(path: Path, labels: list[str], titles: bool, left_out: Counter[str]) -> Columns:
    """Rows of label (from 1), title, description; or of text, label (from 0)."""
    rows: Columns = {"text": [], "label": []}
    width = _width(path)
    known = {str(i): label for i, label in enumerate(labels, 0 if width == 2 else 1)}
    for number, line in read_lines(path):
        row = parse_csv_line(line)
        if number == 1 and row and not (row[0].isdigit() or row[-1].isdigit()):
            continue  # some copies have a header
        if len(row) < width:
            left_out[MISSING_COLUMNS] += bool(row)
            continue
        said = row[1 if width == 2 else 0].strip()
        if said not in known:
            raise DataError(
                f"{path.name}, line {number}: label '{said}' is none of {', '.join(known)}; give the original file."
            )
        text = row[0] if width == 2 else " ".join(row[1:3]) if titles else row[2]
        rows["text"].append(without_backslashes(text))
        rows["label"].append(known[said])
    return rows
