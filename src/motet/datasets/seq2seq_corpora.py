"""Sequence-to-sequence corpora: summaries, headlines, e-mail subjects, replies and questions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.original_files import (
    MISSING_COLUMNS,
    check_folder,
    find_file,
    find_in_folder,
    list_folder,
    read_columns,
    read_jsonl,
    require_file_set,
    walk_folders,
)
from motet.datasets.read_log import ReadLog
from motet.datasets.splits import Columns, add_column, build_corpus, concatenate, split_by_group
from motet.datasets.text_encoding import TextEncoding
from motet.datasets.text_files import read_lines, read_text

EMPTY_PAIR = "rows with an empty source or target"
BBC_TOPICS = ("business", "entertainment", "politics", "sport", "tech")
CORNELL_SEPARATOR = "+++$+++"
CORNELL_ENCODING = TextEncoding("cp1252", "the encoding of this corpus")  # latin-1 with Windows dashes and quotes
CNN_DM_FILES = "expected cnn_stories and dailymail_stories, or train.jsonl or train.csv with article and highlights"

FileNames = Sequence[tuple[str, str]]  # names of a source file and its target file


def gigaword(folder: Path) -> Corpus:
    """First sentences of news and their headlines. Seq2seq. From github.com/harvardnlp/sent-summary."""
    train = [("train.article.txt", "train.title.txt")]
    test = [("test.article.txt", "test.title.txt"), ("input.txt", "task1_ref0.txt")]
    test += [(f"valid.article{middle}.txt", f"valid.title{middle}.txt") for middle in (".filter", "")]
    hint = "unpack summary.tar.gz of github.com/harvardnlp/sent-summary there"
    return _read_parallel_corpus("gigaword", folder, train, test, hint)


def msqg(folder: Path) -> Corpus:
    """Passages and questions about a marked span. Seq2seq. From github.com/microsoft/glge (MSQG)."""
    data_folder = find_file(check_folder("msqg", folder), "msqg_data/org_data", "org_data") or folder
    # GLGE does not publish the questions of its test set, so the dev set is used.
    test = [(f"{split}.src", f"{split}.tgt") for split in ("test", "dev", "valid")]
    hint = "unpack msqg_data of github.com/microsoft/glge there"
    return _read_parallel_corpus("msqg", data_folder, [("train.src", "train.tgt")], test, hint)


def squad_qg(folder: Path) -> Corpus:
    """Sentences from SQuAD and questions about them. Seq2seq. From github.com/xinyadu/nqg."""
    train, dev, test = ((f"src-{split}.txt", f"tgt-{split}.txt") for split in ("train", "dev", "test"))
    hint = "put the files of data/processed of github.com/xinyadu/nqg there"
    return _read_parallel_corpus("squad-qg", folder, [train, dev], [test, dev], hint)


def _read_parallel_corpus(name: str, folder: Path, train: FileNames, test: FileNames, hint: str) -> Corpus:
    """Train on the first pair of files that exists in `train`, and test on the first other pair in `test`."""
    pairs = [pair for pair in (_find_pair(check_folder(name, folder), names) for names in train) if pair][:1]
    if not pairs:
        raise DataError(f"{name}: there is no file '{train[0][0]}' with its '{train[0][1]}' in {folder}; {hint}.")
    pairs += [pair for pair in (_find_pair(folder, names) for names in test) if pair and pair not in pairs][:1]
    log = ReadLog(folder)
    splits = [_read_parallel_files(name, source, target, log) for source, target in pairs]
    return build_corpus(name, "seq2seq", splits[0], splits[1] if len(splits) > 1 else None, log)


def _find_pair(folder: Path, names: tuple[str, str]) -> tuple[Path, Path] | None:
    source = find_file(folder, names[0])
    target = find_in_folder(source.parent, names[1]) if source else None
    return (source, target) if source and target else None


def _read_parallel_files(name: str, source: Path, target: Path, log: ReadLog) -> Columns:
    sources, targets = ([line for _, line in read_lines(path, log)] for path in (source, target))
    if len(sources) != len(targets):
        raise DataError(
            f"{name}: {source.name} has {len(sources):,} lines and {target.name} has {len(targets):,}; "
            "expected a target line for each source line. Download both again."
        )
    return _to_columns(zip(sources, targets, strict=True), source, log)


def _to_columns(pairs: Iterable[tuple[str, str]], path: Path, log: ReadLog) -> Columns:
    columns: Columns = {"source": [], "target": []}
    for number, (source, target) in enumerate(pairs, 1):
        if source.strip() and target.strip():
            columns["source"].append(source.strip())
            columns["target"].append(target.strip())
        else:
            log.drop(EMPTY_PAIR, path, f"row {number}")
    return columns


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())


def cnn_dm(folder: Path) -> Corpus:
    """News and highlights. Seq2seq; domain = cnn or dailymail. From Hermann et al., 2015: stories, JSONL or CSV."""
    log = ReadLog(folder)
    train = _find_table(check_folder("cnn-dm", folder), ("train",))
    if train is not None:
        test = _find_table(train.parent, ("test", "validation", "valid", "val", "dev"))
        tables = [path for path in (train, test) if path is not None]
        splits = [_to_columns(_read_articles(path, log), path, log) for path in tables]
        return build_corpus("cnn-dm", "seq2seq", splits[0], splits[1] if len(splits) > 1 else None, log)
    stories = [path for parent in walk_folders(folder) for path in list_folder(parent) if path.suffix == ".story"]
    if not stories:
        raise DataError(f"cnn-dm: there are no .story files in {folder}; {CNN_DM_FILES}.")
    train_urls, test_urls = (find_file(folder, f"all_{split}.txt") for split in ("train", "test"))
    if train_urls is not None and test_urls is not None:
        splits = [_read_stories(folder, _select_stories(stories, urls, log), log) for urls in (train_urls, test_urls)]
        return build_corpus("cnn-dm", "seq2seq", splits[0], splits[1], log)
    columns = _read_stories(folder, stories, log)
    return build_corpus("cnn-dm", "seq2seq", columns, None, log)


def _find_table(folder: Path, splits: tuple[str, ...]) -> Path | None:
    return find_file(folder, *(f"{split}{suffix}" for split in splits for suffix in (".jsonl", ".csv")))


def _read_articles(path: Path, log: ReadLog) -> Iterator[tuple[str, str]]:
    """Yield each article on one line, and its highlights on one line each."""
    if ".csv" in path.name:
        for _, (article, highlights) in read_columns(path, ("article", "highlights"), log, "cnn-dm"):
            yield _collapse_whitespace(article), highlights
        return
    for number, row in read_jsonl(path, log):
        text, summary = row.get("article"), row.get("highlights")
        if not isinstance(text, str) or not isinstance(summary, str | list):
            raise DataError(
                f"{path.name}, line {number}: expected an article and its highlights; the row has {', '.join(row)}."
            )
        yield _collapse_whitespace(text), summary if isinstance(summary, str) else "\n".join(map(str, summary))


def _select_stories(stories: list[Path], url_list: Path, log: ReadLog) -> list[Path]:
    """Return the stories of a list of URLs. The name of a story is the SHA-1 of its URL."""
    urls = (line.strip().encode() for _, line in read_lines(url_list, log))
    names = {hashlib.sha1(url, usedforsecurity=False).hexdigest() for url in urls}
    return [path for path in stories if path.stem in names]


def _read_stories(folder: Path, stories: list[Path], log: ReadLog) -> Columns:
    columns: Columns = {"source": [], "target": [], "domain": []}
    for path in stories:
        article, *highlights = re.split(r"^@highlight\s*$", read_text(path, log), flags=re.MULTILINE)
        target = "\n".join(_collapse_whitespace(highlight) for highlight in highlights if highlight.strip())
        if not article.strip() or not target:
            log.drop(EMPTY_PAIR, path)
            continue
        columns["source"].append(_collapse_whitespace(article))
        columns["target"].append(target)
        parent = f"{folder.name}/{path.parent.relative_to(folder)}".lower()
        columns["domain"].append("dailymail" if "dailymail" in parent else "cnn")
    return columns


def cornell(folder: Path) -> Corpus:
    """Movie lines and replies. Seq2seq; client = movie. From cornell_movie_dialogs_corpus.zip."""
    hint = "unpack cornell_movie_dialogs_corpus.zip there"
    names = (["movie_lines.txt"], ["movie_conversations.txt"])
    lines, conversations = require_file_set("cornell", folder, *names, hint=hint)
    log = ReadLog(folder)
    texts = {fields[0]: fields[4] for _, fields in _read_cornell(lines, 5, log)}
    columns: Columns = {"source": [], "target": [], "client": []}
    groups = []
    for number, fields in _read_cornell(conversations, 4, log):
        for line, reply in pairwise(re.findall(r"L\d+", fields[3])):
            if not texts.get(line) or not texts.get(reply):
                log.drop(EMPTY_PAIR, lines, f"{line} and {reply}")
                continue
            columns["source"].append(texts[line])
            columns["target"].append(texts[reply])
            columns["client"].append(fields[2])
            groups.append(number)
    # A reply is the source of the next pair: a conversation must stay in one split.
    return split_by_group("cornell", "seq2seq", columns, groups, log)


def _read_cornell(path: Path, num_fields: int, log: ReadLog) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers and fields. The last of five fields is a text, which may contain the separator."""
    max_splits = num_fields - 1 if num_fields == 5 else -1
    for number, line in read_lines(path, log, CORNELL_ENCODING):
        fields = [field.strip() for field in line.split(CORNELL_SEPARATOR, max_splits)]
        if len(fields) == num_fields:
            yield number, fields
        else:
            log.drop(MISSING_COLUMNS, path, number, count=bool(line.strip()))


def aeslc(folder: Path) -> Corpus:
    """Enron e-mails and their subjects. Seq2seq; client = mailbox. From github.com/ryanzhumich/AESLC."""
    hint = "put the folder enron_subject_line of github.com/ryanzhumich/AESLC there"
    log = ReadLog(folder)
    names = ([f"enron_subject_line/{split}", split] for split in ("train", "test"))
    folders = require_file_set("aeslc", folder, *names, hint=hint)
    splits = [_read_emails(split_folder, log) for split_folder in folders]
    return build_corpus("aeslc", "seq2seq", splits[0], splits[1], log)


def _read_emails(folder: Path, log: ReadLog) -> Columns:
    """Read a body, `@subject` and the subject from each file. The annotators' subjects (`@ann0`, …) are not used."""
    columns: Columns = {"source": [], "target": [], "client": []}
    for path in list_folder(folder):
        if path.suffix != ".subject":
            continue
        body, *subjects = re.split(r"^@(?:subject|ann\d+)\s*$", read_text(path, log), flags=re.MULTILINE)
        if not subjects or not body.strip() or not subjects[0].strip():
            log.drop(EMPTY_PAIR, path)
            continue
        columns["source"].append(_collapse_whitespace(body))
        columns["target"].append(_collapse_whitespace(subjects[0]))
        columns["client"].append(path.name.partition("_")[0])
    return columns


def bbc(folder: Path) -> Corpus:
    """BBC news and summaries. Seq2seq; domain = topic. From BBC News Summary: News Articles, Summaries."""
    hint = "unpack the BBC News Summary archive there"
    articles, summaries = require_file_set("bbc", folder, ["News Articles"], ["Summaries"], hint=hint)
    log = ReadLog(folder)
    parts = []
    for topic in (entry for entry in list_folder(articles) if entry.is_dir() and not entry.name.startswith(".")):
        if topic.name not in BBC_TOPICS:
            raise DataError(
                f"bbc: '{topic}' is not one of the topics {', '.join(BBC_TOPICS)}. Give the original folder."
            )
        files = [path for path in list_folder(topic) if path.suffix == ".txt"]
        pairs = [(path, summaries / topic.name / path.name) for path in files]
        for article, summary in pairs:
            if not summary.exists():
                log.drop("articles without a summary", article)
        texts = (
            (_collapse_whitespace(read_text(article, log)), _collapse_whitespace(read_text(summary, log)))
            for article, summary in pairs
            if summary.exists()
        )
        parts.append(add_column(_to_columns(texts, topic, log), "domain", topic.name))
    columns = concatenate(parts)
    # Some articles occur twice: they must not be in both splits.
    groups = columns.get("source", ())
    return split_by_group("bbc", "seq2seq", columns, groups, log)
