"""Extractive question answering: SQuAD, SQuADShifts, MRQA, NewsQA, SubjQA and PolicyQA."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.original_files import (
    check_folder,
    find_file,
    find_in_folder,
    list_folder,
    read_columns,
    require_file_set,
    walk_folders,
)
from motet.datasets.read_log import ReadLog
from motet.datasets.splits import (
    Columns,
    add_column,
    build_corpus,
    concatenate,
    cut_splits,
    find_subcorpora,
    split_by_group,
)
from motet.datasets.squad_json import ANSWER_NOT_IN_CONTEXT, QA_COLUMNS, add_question, read_mrqa, read_squad

SQUADSHIFTS_DOMAINS = ("wiki", "nyt", "reddit", "amazon")
SUBJQA_NO_ANSWER = "ANSWERNOTFOUND"  # appended to every review; unanswerable questions point to it
SUBJQA_COLUMNS = ("q_review_id", "question", "review", "human_ans_spans", "human_ans_indices")


def squad(folder: Path) -> Corpus:
    """SQuAD 1.1: questions about Wikipedia. QA; title = article. From rajpurkar.github.io/SQuAD-explorer."""
    return _read_squad_version("squad", folder, "v1.1")


def squad2(folder: Path) -> Corpus:
    """SQuAD 2.0: questions about Wikipedia, some unanswerable. QA; title = article. From rajpurkar.github.io."""
    return _read_squad_version("squad2", folder, "v2.0")


def _read_squad_version(name: str, folder: Path, version: str) -> Corpus:
    names = [f"{split}-{version}.json" for split in ("train", "dev")]
    nearest = find_file(check_folder(name, folder), *names)
    candidates = [find_in_folder(nearest.parent, split) for split in names] if nearest else []
    files = [path for path in candidates if path is not None]
    if not files:
        other = "squad2" if version == "v1.1" else "squad"
        raise DataError(
            f"{name}: there is no file 'train-{version}.json' or 'dev-{version}.json' in {folder}; "
            f"download them from rajpurkar.github.io/SQuAD-explorer, or use {other} for the other version."
        )
    log = ReadLog(folder)
    splits = [read_squad(path, log) for path in files]
    if len(splits) == 2:
        return build_corpus(name, "qa", splits[0], splits[1], log)
    columns = splits[0]
    groups = columns["title"] if len(set(columns["title"])) > 1 else columns["context"]
    return split_by_group(name, "qa", columns, groups, log)


def mrqa(
    folder: Path, train_limit: int | None = 10_000, dev_limit: int | None = 500, ascii_only: bool = True
) -> Corpus:
    """MRQA 2019: six QA corpora, 10,000 questions of each. QA; domain = corpus. From mrqa.github.io."""
    subcorpora = find_subcorpora(check_folder("mrqa", folder), (".jsonl",))
    has_train_files = any(files.keys() & {"train", None} for files in subcorpora.values())
    log = ReadLog(folder)
    train_parts, test_parts = [], []
    for domain, files in subcorpora.items():
        train, test = files.get("train") or files.get(None), files.get("dev") or files.get("test")
        if train is None and has_train_files:
            for path in files.values():  # MRQA's out-of-domain sets
                log.ignore(path, "no training file")
            continue
        splits = [
            read_mrqa(path, log, limit, ascii_only)
            for path, limit in ((train, train_limit), (test, dev_limit))
            if path is not None
        ]
        if len(splits) == 1:
            corpus = split_by_group(f"mrqa/{domain}", "qa", splits[0], splits[0]["context"], log)
            splits = list(cut_splits(corpus))
        train_parts.append(add_column(splits[0], "domain", domain))
        test_parts.append(add_column(splits[1], "domain", domain))
    if not train_parts:
        raise DataError(
            f"mrqa: there is no .jsonl.gz file in {folder}; "
            "download the files of mrqa.github.io, such as train/SQuAD.jsonl.gz and dev/SQuAD.jsonl.gz."
        )
    return build_corpus("mrqa", "qa", concatenate(train_parts), concatenate(test_parts), log)


def newsqa(folder: Path) -> Corpus:
    """Questions about CNN articles. QA. From mrqa.github.io: train/NewsQA.jsonl.gz, dev/NewsQA.jsonl.gz."""
    subcorpora = find_subcorpora(check_folder("newsqa", folder), (".jsonl",))
    files = next((f for name, f in subcorpora.items() if "newsqa" in name.lower() or len(subcorpora) == 1), {})
    train = files.get("train") or files.get(None)
    test = files.get("dev") or files.get("test")
    paths = [path for path in (train, test) if path is not None]
    if not paths:
        raise DataError(
            f"newsqa: there is no file 'NewsQA.jsonl.gz' in {folder}; "
            "download train/NewsQA.jsonl.gz and dev/NewsQA.jsonl.gz of MRQA 2019 (mrqa.github.io)."
        )
    log = ReadLog(folder)
    splits = [read_mrqa(path, log) for path in paths]
    if len(splits) == 2:
        return build_corpus("newsqa", "qa", splits[0], splits[1], log)
    return split_by_group("newsqa", "qa", splits[0], splits[0]["context"], log)


def squadshifts(folder: Path) -> Corpus:
    """Questions about Wikipedia, NYT, Reddit and Amazon. QA; domain = source. From modestyachts.github.io."""
    log = ReadLog(folder)
    parts: list[Columns] = []
    files: list[Path] = []
    for parent in walk_folders(check_folder("squadshifts", folder)):
        for path in list_folder(parent):
            domain = next((d for d in SQUADSHIFTS_DOMAINS if d in path.name.lower()), None)
            if path.suffix == ".json" and domain is not None:
                files.append(path)
                parts.append(add_column(read_squad(path, log), "domain", domain))
    if not files:
        raise DataError(
            f"squadshifts: there is no file 'new_wiki_v1.0.json' in {folder}; "
            "put the files of at least one domain there."
        )
    columns = concatenate(parts)
    return split_by_group("squadshifts", "qa", columns, columns.get("context", ()), log)


def subjqa(folder: Path) -> Corpus:
    """Subjective questions about reviews. QA; domain = category. From github.com/megagonlabs/SubjQA."""
    log = ReadLog(folder)
    parts: dict[str, list[Columns]] = {"train": [], "test": []}
    for domain in walk_folders(check_folder("subjqa", folder)):
        if all((domain / f"{split}.csv").exists() for split in parts):
            for split, split_parts in parts.items():
                columns = _read_subjqa(domain / f"{split}.csv", log)
                split_parts.append(add_column(columns, "domain", domain.name))
    if not parts["train"]:
        raise DataError(
            f"subjqa: there is no folder with train.csv and test.csv in {folder}; "
            "expected one per domain, such as grocery/train.csv."
        )
    return build_corpus("subjqa", "qa", concatenate(parts["train"]), concatenate(parts["test"]), log)


def _read_subjqa(path: Path, log: ReadLog) -> Columns:
    """Read the questions of a file. It has one row per annotator; the answers to a question are merged."""
    questions: dict[str, tuple[str, str]] = {}
    answers: dict[str, list[tuple[str, int]]] = {}
    not_in_context: Counter[str] = Counter()
    for _, (key, question, review, answer, indices) in read_columns(path, SUBJQA_COLUMNS, log, "subjqa"):
        context = review.rstrip().removesuffix(SUBJQA_NO_ANSWER).rstrip()
        questions.setdefault(key, (question.strip(), context))
        question_answers = answers.setdefault(key, [])
        if answer.strip() in ("", SUBJQA_NO_ANSWER):
            continue
        span = [int(number) for number in re.findall(r"\d+", indices)[:2]]
        text = context[span[0] : span[1]] if len(span) == 2 else ""
        # The annotated answer is tokenized; the same span of the review has the original spacing.
        if "".join(text.split()) == "".join(answer.split()):
            question_answers.append((text, span[0]))
        elif answer in context:
            question_answers.append((answer, -1))
        else:
            not_in_context[key] += 1
    columns: Columns = {name: [] for name in QA_COLUMNS}
    for key, (question, context) in questions.items():
        if not_in_context[key] and not answers[key]:
            log.drop(ANSWER_NOT_IN_CONTEXT, path, f"question '{key}'")
        else:
            values = {"id": key, "context": context, "question": question}
            add_question(columns, values, answers[key], log, path)
    return columns


def policyqa(folder: Path) -> Corpus:
    """Questions about privacy policies. QA; client = website. From github.com/wasiahmad/PolicyQA."""
    hint = "put train.json and test.json of github.com/wasiahmad/PolicyQA there"
    train, test = require_file_set("policyqa", folder, ("train.json", "dev.json"), ("test.json",), hint=hint)
    log = ReadLog(folder)
    splits = [
        {"client" if name == "title" else name: values for name, values in read_squad(path, log).items()}
        for path in (train, test)
    ]
    return build_corpus("policyqa", "qa", splits[0], splits[1], log)
