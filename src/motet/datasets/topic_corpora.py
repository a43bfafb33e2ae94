"""Topic classification: 20 Newsgroups and AG News."""

from __future__ import annotations

import re
from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.original_files import (
    MISSING_COLUMNS,
    find_in_folder,
    list_folder,
    parse_csv_line,
    require_file_set,
)
from motet.datasets.read_log import ReadLog
from motet.datasets.splits import Columns, build_corpus
from motet.datasets.text_encoding import TextEncoding
from motet.datasets.text_files import read_lines, read_text

LATIN1 = TextEncoding("latin-1", "the encoding of this corpus")
NEWSGROUPS = [
    "alt.atheism",
    "comp.graphics",
    "comp.os.ms-windows.misc",
    "comp.sys.ibm.pc.hardware",
    "comp.sys.mac.hardware",
    "comp.windows.x",
    "misc.forsale",
    "rec.autos",
    "rec.motorcycles",
    "rec.sport.baseball",
    "rec.sport.hockey",
    "sci.crypt",
    "sci.electronics",
    "sci.med",
    "sci.space",
    "soc.religion.christian",
    "talk.politics.guns",
    "talk.politics.mideast",
    "talk.politics.misc",
    "talk.religion.misc",
]
AG_LABELS = ("World", "Sports", "Business", "Sci/Tech")


def twenty_news(folder: Path) -> Corpus:
    """Newsgroup posts with headers, 20 topics. Classification. From qwone.com/~jason/20Newsgroups (bydate)."""
    hint = "unpack 20news-bydate.tar.gz there"
    names = (["20news-bydate-train"], ["20news-bydate-test"])
    train, test = require_file_set("20news", folder, *names, hint=hint)
    log = ReadLog(folder)
    return build_corpus("20news", "classification", _read_posts(train, log), _read_posts(test, log), log)


def _read_posts(folder: Path, log: ReadLog) -> Columns:
    columns: Columns = {"text": [], "label": []}
    for group in list_folder(folder):
        if group.is_dir() and group.name not in NEWSGROUPS and not group.name.startswith("."):
            raise DataError(f"20news: '{group}' is not one of the 20 newsgroups. Give the folder that was downloaded.")
        for post in list_folder(group) if group.name in NEWSGROUPS and group.is_dir() else ():
            if post.is_file() and not post.name.startswith("."):
                columns["text"].append(read_text(post, log, LATIN1).replace("\n", " ").strip())
                columns["label"].append(group.name)
    return columns


def ag_news(folder: Path) -> Corpus:
    """News descriptions, four topics. Classification. From Zhang et al., 2015: ag_news_csv.tgz."""
    hint = "unpack ag_news_csv.tgz there"
    train, test = require_file_set("agnews", folder, ("train.csv", "train_5k.csv"), ("test.csv",), hint=hint)
    classes = find_in_folder(train.parent, "classes.txt")
    log = ReadLog(folder)
    labels = [line.strip() for _, line in read_lines(classes, log) if line.strip()] if classes else list(AG_LABELS)
    # A training file with two columns has title and description in one: then the test rows get their titles, too.
    with_titles = _count_columns(train, log) == 2
    splits = [_read_news(path, labels, with_titles, log) for path in (train, test)]
    if with_titles:
        log.note("The texts have titles, as in the training file.")
    return build_corpus("agnews", "classification", splits[0], splits[1], log)


def _count_columns(path: Path, log: ReadLog) -> int:
    """Return the number of columns in the first nonempty line."""
    return next((len(parse_csv_line(line)) for _, line in read_lines(path, log) if line.strip()), 0)


def remove_backslashes(text: str) -> str:
    """Replace a backslash between two words, which marks a line break, by a space, and remove all others (`\\$50`)."""
    return re.sub(r"(?<=\S)\\+(?=\S)", " ", text).replace("\\", "").strip()


def _read_news(path: Path, labels: list[str], with_titles: bool, log: ReadLog) -> Columns:
    """Read rows of label (from 1), title and description, or rows of text and label (from 0)."""
    columns: Columns = {"text": [], "label": []}
    num_columns = _count_columns(path, log)
    label_names = {str(i): label for i, label in enumerate(labels, 0 if num_columns == 2 else 1)}
    for number, line in read_lines(path, log):
        row = parse_csv_line(line)
        if number == 1 and row and not (row[0].isdigit() or row[-1].isdigit()):
            continue  # some copies have a header
        if len(row) < max(2, num_columns):
            log.drop(MISSING_COLUMNS, path, number, count=bool(row))
            continue
        label = row[1 if num_columns == 2 else 0].strip()
        if label not in label_names:
            raise DataError(
                f"{path.name}, line {number}: label '{label}' is not one of {', '.join(label_names)}. "
                "Use the original file."
            )
        text = row[0] if num_columns == 2 else " ".join(row[1:3] if with_titles else row[2:3])
        columns["text"].append(remove_backslashes(text))
        columns["label"].append(label_names[label])
    return columns
