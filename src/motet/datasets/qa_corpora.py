"""Questions whose answers stand in a text: SQuAD and its kin, MRQA, NewsQA, SubjQA, PolicyQA."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.original_files import check_folder, find_file, list_folder, read_columns, require_file, walk_folders
from motet.datasets.splits import (
    Columns,
    add_column,
    build_corpus,
    concatenate,
    describe_source,
    find_subcorpora,
    num_rows,
    split_by_group,
)
from motet.datasets.squad_json import ANSWER_NOT_IN_CONTEXT, QA_COLUMNS, add_question, read_mrqa, read_squad

SHIFTS = ("wiki", "nyt", "reddit", "amazon")
NO_ANSWER = "ANSWERNOTFOUND"  # SubjQA writes this behind each review and points there when a question has no answer
SUBJECTIVE = ("q_review_id", "question", "review", "human_ans_spans", "human_ans_indices")


def squad(folder: Path) -> Corpus:
    """Questions on Wikipedia, SQuAD 1.1 (train-v1.1.json, dev-v1.1.json of rajpurkar.github.io); title = article."""
    return _squad("squad", folder, "v1.1")


def squad2(folder: Path) -> Corpus:
    """Questions on Wikipedia, half of them without an answer, SQuAD 2.0 (train-v2.0.json, dev-v2.0.json); title = article."""
    return _squad("squad2", folder, "v2.0")


def _squad(name: str, folder: Path, version: str) -> Corpus:
    files = [find_file(check_folder(name, folder), f"{part}-{version}.json") for part in ("train", "dev")]
    there = [path for path in files if path is not None]
    if not there:
        other = "squad2" if version == "v1.1" else "squad"
        raise DataError(
            f"{name}: there is no file 'train-{version}.json' or 'dev-{version}.json' in {folder}; "
            f"fetch them from rajpurkar.github.io/SQuAD-explorer, or read the other version with {other}."
        )
    left_out: Counter[str] = Counter()
    rows = [read_squad(path, left_out) for path in there]
    source = describe_source(there, left_out)
    if len(rows) == 2:
        return build_corpus(name, "qa", rows[0], rows[1], source)
    several = len(set(rows[0]["title"])) > 1
    return split_by_group(name, "qa", rows[0], rows[0]["title" if several else "context"], source=source)


def mrqa(folder: Path, train: int | None = 10_000, dev: int | None = 500, ascii_only: bool = True) -> Corpus:
    """Six corpora of questions in one form, the first 10,000 of each; domain = corpus (MRQA 2019: SQuAD.jsonl.gz, …)."""
    every = find_subcorpora(check_folder("mrqa", folder), (".jsonl",))
    left_out: Counter[str] = Counter()
    trains, tests = [], []
    for domain, files in every.items():
        first, second = files.get("train") or files.get(None), files.get("dev") or files.get("test")
        if first is None and any(parts.keys() & {"train", None} for parts in every.values()):
            left_out["corpora without a training part"] += 1  # MRQA's out-of-domain sets
            continue
        rows = [
            read_mrqa(path, left_out, most, ascii_only)
            for path, most in ((first, train), (second, dev))
            if path is not None
        ]
        parts = rows if len(rows) == 2 else _halves(f"mrqa/{domain}", rows[0], domain)
        trains.append(add_column(parts[0], "domain", domain))
        tests.append(add_column(parts[1], "domain", domain))
    if not trains:
        raise DataError(
            f"mrqa: there is no .jsonl.gz file in {folder}; "
            "fetch those of mrqa.github.io, such as train/SQuAD.jsonl.gz and dev/SQuAD.jsonl.gz."
        )
    return build_corpus(
        "mrqa",
        "qa",
        concatenate(trains),
        concatenate(tests),
        describe_source([r["domain"][0] for r in trains if num_rows(r)], left_out),
    )


def _halves(name: str, rows: Columns, source: str) -> list[Columns]:
    corpus = split_by_group(name, "qa", rows, rows["context"], source=source)
    cuts = (slice(None, corpus.num_train), slice(corpus.num_train, None))
    return [{key: list(column[cut]) for key, column in corpus.columns.items()} for cut in cuts]


def newsqa(folder: Path) -> Corpus:
    """Questions on articles of CNN (NewsQA in the form of MRQA 2019: train/NewsQA.jsonl.gz, dev/NewsQA.jsonl.gz)."""
    every = find_subcorpora(check_folder("newsqa", folder), (".jsonl",))
    files = next((files for name, files in every.items() if "newsqa" in name.lower() or len(every) == 1), {})
    first = files.get("train") or files.get(None)
    second = files.get("dev") or files.get("test")
    there = [path for path in (first, second) if path is not None]
    if not there:
        raise DataError(
            f"newsqa: there is no file 'NewsQA.jsonl.gz' in {folder}; "
            "fetch train/NewsQA.jsonl.gz and dev/NewsQA.jsonl.gz of MRQA 2019 (mrqa.github.io)."
        )
    left_out: Counter[str] = Counter()
    rows = [read_mrqa(path, left_out) for path in there]
    if len(rows) == 2:
        return build_corpus("newsqa", "qa", rows[0], rows[1], describe_source(there, left_out))
    return split_by_group("newsqa", "qa", rows[0], rows[0]["context"], source=describe_source(there, left_out))


def squadshifts(folder: Path) -> Corpus:
    """Questions on Wikipedia, the New York Times, Reddit, Amazon; domain = which (SQuADShifts, modestyachts.github.io)."""
    left_out: Counter[str] = Counter()
    parts: list[Columns] = []
    files = []
    for path in (
        path
        for place in walk_folders(check_folder("squadshifts", folder))
        for path in list_folder(place)
        if path.suffix == ".json"
    ):
        domain = next((shift for shift in SHIFTS if shift in path.name.lower()), None)
        if domain is not None:
            files.append(path)
            parts.append(add_column(read_squad(path, left_out), "domain", domain))
    if not files:
        raise DataError(
            f"squadshifts: there is no file 'new_wiki_v1.0.json' in {folder}; put that of one shift at least there."
        )
    rows = concatenate(parts)
    return split_by_group("squadshifts", "qa", rows, rows.get("context", ()), source=describe_source(files, left_out))


def subjqa(folder: Path) -> Corpus:
    """Questions of opinion on reviews; domain = what is reviewed (SubjQA: a folder a domain with train.csv, test.csv)."""
    left_out: Counter[str] = Counter()
    parts: dict[str, list[Columns]] = {"train": [], "test": []}
    for place in walk_folders(check_folder("subjqa", folder)):
        if all((place / f"{part}.csv").exists() for part in parts):
            for part, rows in parts.items():
                rows.append(add_column(_opinions(place / f"{part}.csv", left_out), "domain", place.name))
    if not parts["train"]:
        raise DataError(
            f"subjqa: there is no folder with train.csv and test.csv in {folder}; "
            "expected one a domain, such as grocery/train.csv."
        )
    source = describe_source([rows["domain"][0] for rows in parts["train"] if num_rows(rows)], left_out)
    return build_corpus("subjqa", "qa", concatenate(parts["train"]), concatenate(parts["test"]), source)


def _opinions(path: Path, left_out: Counter[str]) -> Columns:
    """A row of the file is what one reader marked; what several marked for the same question and review is one question."""
    asked: dict[str, tuple[str, str]] = {}
    marked: dict[str, list[tuple[str, int]]] = {}
    lost: Counter[str] = Counter()
    for _, (key, question, review, answer, indices) in read_columns(path, SUBJECTIVE, left_out, "subjqa"):
        context = review.rstrip().removesuffix(NO_ANSWER).rstrip()
        asked.setdefault(key, (question.strip(), context))
        answers = marked.setdefault(key, [])
        if answer.strip() in ("", NO_ANSWER):
            continue
        span = [int(number) for number in re.findall(r"\d+", indices)[:2]]
        text = context[span[0] : span[1]] if len(span) == 2 else ""
        # The marked text has blanks between its words and commas; the span of the review is the same text as it was written.
        if "".join(text.split()) == "".join(answer.split()):
            answers.append((text, span[0]))
        elif answer in context:
            answers.append((answer, -1))
        else:
            lost[key] += 1
    rows: Columns = {name: [] for name in QA_COLUMNS}
    for key, (question, context) in asked.items():
        if lost[key] and not marked[key]:
            left_out[ANSWER_NOT_IN_CONTEXT] += 1
        else:
            add_question(rows, {"id": key, "context": context, "question": question}, marked[key], left_out)
    return rows


def policyqa(folder: Path) -> Corpus:
    """Questions on privacy policies of websites; client = website (PolicyQA: train.json, dev.json, test.json)."""
    hint = "put train.json and test.json of github.com/wasiahmad/PolicyQA there"
    train = find_file(check_folder("policyqa", folder), "train.json") or require_file(
        "policyqa", folder, "dev.json", hint=hint
    )
    test = require_file("policyqa", folder, "test.json", hint=hint)
    left_out: Counter[str] = Counter()
    parts = [read_squad(path, left_out) for path in (train, test)]
    sites = [{**{k: v for k, v in rows.items() if k != "title"}, "client": rows["title"]} for rows in parts]
    return build_corpus("policyqa", "qa", sites[0], sites[1], describe_source([train, test], left_out))
