"""Texts from texts: summaries, headlines, subjects, replies, questions."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.original_files import (
    MISSING_COLUMNS,
    check_folder,
    find_file,
    list_folder,
    read_columns,
    read_jsonl,
    read_lines,
    read_text,
    require_file,
    walk_folders,
)
from motet.datasets.splits import Columns, add_column, build_corpus, concatenate, describe_source, split_by_group

EMPTY = "rows with an empty side"
Pairs = list[tuple[str, str]]
SEPARATOR = "+++$+++"
WINDOWS = "cp1252"  # latin-1, and the dashes and quotes that Windows put in its unused places
STORIES = "expected cnn_stories and dailymail_stories, or train.jsonl or train.csv with article and highlights"


def _flat(text: str) -> str:
    """On one line."""
    return " ".join(text.split())


def _pairs(pairs: Iterator[tuple[str, str]], left_out: Counter[str]) -> Columns:
    rows: Columns = {"source": [], "target": []}
    for source, target in pairs:
        if source.strip() and target.strip():
            rows["source"].append(source.strip())
            rows["target"].append(target.strip())
        else:
            left_out[EMPTY] += 1
    return rows


def _beside(name: str, source: Path, target: Path, left_out: Counter[str]) -> Columns:
    """Two files whose lines belong together."""
    sides = [[line for _, line in read_lines(path)] for path in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise DataError(
            f"{name}: {source.name} has {len(sides[0]):,} lines and {target.name} {len(sides[1]):,}; "
            "each line of one belongs to the same line of the other. Fetch both again."
        )
    return _pairs(zip(*sides, strict=True), left_out)


def _line_files(name: str, folder: Path, train: Pairs, test: Pairs, hint: str) -> Corpus:
    """The first of these pairs of files that is there to train on, and the first other one to test on."""
    there = [pair for pair in (_both(check_folder(name, folder), names) for names in train) if pair][:1]
    if not there:
        raise DataError(f"{name}: there is no file '{train[0][0]}' with its '{train[0][1]}' in {folder}; {hint}.")
    there += [pair for pair in (_both(folder, names) for names in test) if pair and pair not in there][:1]
    left_out: Counter[str] = Counter()
    rows = [_beside(name, *pair, left_out) for pair in there]
    return build_corpus(
        name,
        "seq2seq",
        rows[0],
        rows[1] if rows[1:] else None,
        describe_source([f for pair in there for f in pair], left_out),
    )


def _both(folder: Path, names: tuple[str, str]) -> tuple[Path, Path] | None:
    source = find_file(folder, names[0])
    target = find_file(source.parent, names[1]) if source else None
    return (source, target) if source and target else None


def gigaword(folder: Path) -> Corpus:
    """First sentences of news and their headlines (sumdata of Rush et al., 2015: train.article.txt, train.title.txt)."""
    train = [("train.article.txt", "train.title.txt")]
    test = [("test.article.txt", "test.title.txt"), ("input.txt", "task1_ref0.txt")]
    test += [(f"valid.article{middle}.txt", f"valid.title{middle}.txt") for middle in (".filter", "")]
    return _line_files(
        "gigaword", folder, train, test, "unpack summary.tar.gz of github.com/harvardnlp/sent-summary there"
    )


def msqg(folder: Path) -> Corpus:
    """Passages with a marked span and the questions people asked for it (MSQG of GLGE: train.src, train.tgt)."""
    inner = find_file(check_folder("msqg", folder), "msqg_data/org_data", "org_data") or folder
    test = [
        (f"{part}.src", f"{part}.tgt") for part in ("test", "dev", "valid")
    ]  # GLGE keeps the questions of its test part
    return _line_files(
        "msqg", inner, [("train.src", "train.tgt")], test, "unpack msqg_data of github.com/microsoft/glge there"
    )


def squad_qg(folder: Path) -> Corpus:
    """Sentences of SQuAD and questions on them, dev as train if that is missing (Du et al., 2017: src-train.txt, …)."""
    train, dev, test = ((f"src-{part}.txt", f"tgt-{part}.txt") for part in ("train", "dev", "test"))
    hint = "put the files of data/processed of github.com/xinyadu/nqg there"
    return _line_files("squad-qg", folder, [train, dev], [test, dev], hint)


def cnn_dm(folder: Path) -> Corpus:
    """News and their highlights; domain = cnn or dailymail for stories (Hermann et al., 2015: .story files, jsonl or csv)."""
    left_out: Counter[str] = Counter()
    tables = [
        _news_table(check_folder("cnn-dm", folder), part)
        for part in (("train",), ("test", "validation", "valid", "val", "dev"))
    ]
    if tables[0] is not None:
        there = [path for path in tables if path is not None]
        rows = [_pairs(_articles(path, left_out), left_out) for path in there]
        return build_corpus(
            "cnn-dm", "seq2seq", rows[0], rows[1] if len(rows) > 1 else None, describe_source(there, left_out)
        )
    stories = [path for place in walk_folders(folder) for path in list_folder(place) if path.suffix == ".story"]
    if not stories:
        raise DataError(f"cnn-dm: there are no stories in {folder}; {STORIES}.")
    lists = [find_file(folder, f"all_{part}.txt") for part in ("train", "test")]
    if None not in lists:
        parts = [_listed(folder, stories, path, left_out) for path in lists if path is not None]
        return build_corpus(
            "cnn-dm",
            "seq2seq",
            parts[0],
            parts[1],
            describe_source(["stories of all_train.txt, all_test.txt"], left_out),
        )
    return build_corpus(
        "cnn-dm", "seq2seq", _stories(folder, stories, left_out), None, describe_source(["stories"], left_out)
    )


def _news_table(folder: Path, parts: tuple[str, ...]) -> Path | None:
    return find_file(folder, *(f"{part}{ending}" for part in parts for ending in (".jsonl", ".csv")))


def _articles(path: Path, left_out: Counter[str]) -> Iterator[tuple[str, str]]:
    """Articles on one line, highlights one a line."""
    if ".csv" in path.name:
        for _, (article, highlights) in read_columns(path, ("article", "highlights"), left_out, "cnn-dm"):
            yield _flat(article), highlights
        return
    for number, row in read_jsonl(path):
        text, summary = row.get("article"), row.get("highlights")
        if not isinstance(text, str) or not isinstance(summary, str | list):
            raise DataError(
                f"{path.name}, line {number}: there is no article with highlights; it has {', '.join(row)}."
            )
        yield _flat(text), summary if isinstance(summary, str) else "\n".join(map(str, summary))


def _listed(folder: Path, stories: list[Path], urls: Path, left_out: Counter[str]) -> Columns:
    """The stories of a list of addresses: a story is named by the SHA-1 of its address."""
    wanted = {hashlib.sha1(line.strip().encode(), usedforsecurity=False).hexdigest() for _, line in read_lines(urls)}
    return _stories(folder, [path for path in stories if path.stem in wanted], left_out)


def _stories(folder: Path, stories: list[Path], left_out: Counter[str]) -> Columns:
    rows: Columns = {"source": [], "target": [], "domain": []}
    for path in stories:
        article, *highlights = re.split(r"^@highlight\s*$", read_text(path), flags=re.MULTILINE)
        target = "\n".join(_flat(part) for part in highlights if part.strip())
        if not article.strip() or not target:
            left_out[EMPTY] += 1
            continue
        rows["source"].append(_flat(article))
        rows["target"].append(target)
        where = f"{folder.name}/{path.parent.relative_to(folder)}".lower()
        rows["domain"].append("dailymail" if "dailymail" in where else "cnn")
    return rows


def cornell(folder: Path) -> Corpus:
    """Lines of films and the replies to them; client = film (cornell_movie_dialogs_corpus.zip)."""
    hint = "unpack cornell_movie_dialogs_corpus.zip there"
    lines = require_file("cornell", folder, "movie_lines.txt", hint=hint)
    talks = require_file("cornell", folder, "movie_conversations.txt", hint=hint)
    left_out: Counter[str] = Counter()
    said = {}
    for _, line in read_lines(lines, WINDOWS):
        parts = [part.strip() for part in line.split(SEPARATOR, 4)]
        if len(parts) == 5:
            said[parts[0]] = parts[4]
        else:
            left_out[MISSING_COLUMNS] += bool(line.strip())
    rows: Columns = {"source": [], "target": [], "client": []}
    groups = []
    for number, line in read_lines(talks, WINDOWS):
        parts = [part.strip() for part in line.split(SEPARATOR)]
        if len(parts) != 4:
            left_out[MISSING_COLUMNS] += bool(line.strip())
            continue
        ids = re.findall(r"L\d+", parts[3])
        for one, two in pairwise(ids):
            if not said.get(one) or not said.get(two):
                left_out[EMPTY] += 1
                continue
            for name, value in (("source", said[one]), ("target", said[two]), ("client", parts[2])):
                rows[name].append(value)
            groups.append(number)
    # A reply is the next line's source: a conversation stays in one part.
    return split_by_group("cornell", "seq2seq", rows, groups, source=describe_source([lines, talks], left_out))


def aeslc(folder: Path) -> Corpus:
    """E-mails of Enron and their subjects; client = owner of the mailbox (AESLC of Zhang and Tetreault, 2019)."""
    hint = "put the folder enron_subject_line of github.com/ryanzhumich/AESLC there"
    left_out: Counter[str] = Counter()
    parts = [require_file("aeslc", folder, f"enron_subject_line/{part}", part, hint=hint) for part in ("train", "test")]
    rows = [_mails(part, left_out) for part in parts]
    return build_corpus("aeslc", "seq2seq", rows[0], rows[1], describe_source(["enron_subject_line"], left_out))


def _mails(folder: Path, left_out: Counter[str]) -> Columns:
    """A body, `@subject` and the subject; in the test part also subjects that annotators wrote, `@ann0` and so on."""
    rows: Columns = {"source": [], "target": [], "client": []}
    for path in list_folder(folder):
        if path.suffix != ".subject":
            continue
        body, *rest = re.split(r"^@(?:subject|ann\d+)\s*$", read_text(path), flags=re.MULTILINE)
        if not rest or not body.strip() or not rest[0].strip():
            left_out[EMPTY] += 1
            continue
        rows["source"].append(_flat(body))
        rows["target"].append(_flat(rest[0]))
        rows["client"].append(path.name.partition("_")[0])
    return rows


def bbc(folder: Path) -> Corpus:
    """News of the BBC and their summaries; domain = topic (BBC News Summary: News Articles, Summaries)."""
    hint = "unpack the BBC News Summary archive there"
    articles = require_file("bbc", folder, "News Articles", hint=hint)
    summaries = require_file("bbc", articles.parent, "Summaries", hint=hint)
    left_out: Counter[str] = Counter()
    parts = []
    for topic in (place for place in list_folder(articles) if place.is_dir()):
        files = [path for path in list_folder(topic) if path.suffix == ".txt"]
        there = [path for path in files if (summaries / topic.name / path.name).exists()]
        left_out["articles without a summary"] += len(files) - len(there)
        pairs = ((_flat(read_text(path)), _flat(read_text(summaries / topic.name / path.name))) for path in there)
        parts.append(add_column(_pairs(pairs, left_out), "domain", topic.name))
    rows = concatenate(parts)
    # Some articles are there twice; they must not be in both parts.
    return split_by_group(
        "bbc", "seq2seq", rows, rows.get("source", ()), source=describe_source([articles, summaries], left_out)
    )
