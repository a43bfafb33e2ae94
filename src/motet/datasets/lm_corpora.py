"""Texts by those who wrote or spoke them, for language models: Shakespeare, Reddit, Stack Overflow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.original_files import (
    MISSING_COLUMNS,
    check_folder,
    find_file,
    list_folder,
    parse_csv_line,
    read_columns,
    read_json,
    read_jsonl,
    read_lines,
    read_text,
    walk_folders,
)
from motet.datasets.splits import (
    Columns,
    build_corpus,
    concatenate,
    describe_source,
    parse_split_name,
    strip_compression_suffix,
)

ROLE = re.compile(r"([A-Z][^:\n]{0,60}):\s*$")
GONE = ("[deleted]", "[removed]")
FILLING = {"<PAD>", "<BOS>", "<EOS>"}  # LEAF's chunks of tokens are filled up to one length

AuthoredTexts = Iterator[tuple[str, str]]  # who, and what


def shakespeare(folder: Path) -> Corpus:
    """Speeches of Shakespeare's roles; client = role (blocks of 'ROLE:' and lines, as in the input.txt of char-rnn)."""
    path = find_file(check_folder("shakespeare", folder), "input.txt", "shakespeare.txt", "shakespeare_input.txt")
    if path is None:
        raise DataError(
            f"shakespeare: there is no file 'input.txt' in {folder}; expected blocks of a role, a colon and lines."
        )
    left_out: Counter[str] = Counter()
    rows: Columns = {"text": [], "client": []}
    spelling: dict[str, str] = {}
    for block in re.split(r"\n\s*\n", read_text(path).strip()):
        first, _, speech = block.strip().partition("\n")
        role = ROLE.match(first)
        if role is None or not speech.strip():
            left_out["blocks without a role" if role is None else "roles that say nothing"] += 1
            continue
        rows["text"].append(speech.strip())
        rows["client"].append(spelling.setdefault(role[1].lower(), role[1]))  # a role is written in more than one way
    return build_corpus("shakespeare", "lm", rows, None, describe_source([path], left_out))


def reddit(folder: Path) -> Corpus:
    """Comments on Reddit; client = author (LEAF's json with users and user_data, or csv with author and body)."""
    left_out: Counter[str] = Counter()
    files = _by_part(check_folder("reddit", folder), (".json",))
    if files:
        return _authored("reddit", files, _leaf, left_out)
    files = _by_part(folder, (".csv",))
    if not files:
        raise DataError(
            f"reddit: there is no .json or .csv file in {folder}; expected LEAF's json, or csv with author and body."
        )
    return _authored("reddit", files, lambda path: _columns("reddit", path, ("author", "body"), left_out), left_out)


def stackoverflow(folder: Path) -> Corpus:
    """Questions and answers of Stack Overflow; client = user (csv or jsonl with user_id and text or tokens)."""
    left_out: Counter[str] = Counter()
    files = _by_part(check_folder("stackoverflow", folder), (".csv", ".jsonl"))
    if not files:
        raise DataError(
            f"stackoverflow: there is no .csv or .jsonl file in {folder}; expected rows with user_id and text (or tokens). "
            "Write the .h5 files of TensorFlow Federated out in that form."
        )
    return _authored("stackoverflow", files, lambda path: _posts(path, left_out), left_out)


def _by_part(folder: Path, suffixes: tuple[str, ...]) -> dict[str, list[Path]]:
    """Files for training and for testing, told by their names or their folders'; a dev part serves where one is missing."""
    made: dict[str, list[Path]] = {}
    for path in (path for place in walk_folders(folder) for path in list_folder(place)):
        if path.is_file() and strip_compression_suffix(path).suffix in suffixes:
            names = (path, *(Path(above) for above in path.relative_to(folder).parts[:-1]))
            part = next((part for part, _ in map(parse_split_name, names) if part), "train")
            made.setdefault(part, []).append(path)
    if "train" not in made and made:
        made["train"] = made.pop("dev" if "dev" in made else "test")
    if "test" not in made and "dev" in made:
        made["test"] = made["dev"]
    return {part: files for part, files in made.items() if part != "dev"}


def _authored(
    name: str, files: dict[str, list[Path]], read: Callable[[Path], AuthoredTexts], left_out: Counter[str]
) -> Corpus:
    """Rows of text and client; what nobody wrote, or is no longer there, is left out."""
    parts = {}
    for part, paths in files.items():
        parts[part] = concatenate(_written(read(path), left_out) for path in paths)
    return build_corpus(
        name,
        "lm",
        parts["train"],
        parts.get("test"),
        describe_source([path for paths in files.values() for path in paths], left_out),
    )


def _written(said: AuthoredTexts, left_out: Counter[str]) -> Columns:
    rows: Columns = {"text": [], "client": []}
    for author, text in said:
        if not text.strip() or text.strip() in GONE or not author.strip() or author in GONE:
            left_out["texts that are empty or deleted"] += 1
            continue
        rows["text"].append(text.strip())
        rows["client"].append(author)
    return rows


def _columns(corpus: str, path: Path, names: tuple[str, str], left_out: Counter[str]) -> AuthoredTexts:
    for _, (author, text) in read_columns(path, names, left_out, corpus):
        yield author, text


def _posts(path: Path, left_out: Counter[str]) -> AuthoredTexts:
    if strip_compression_suffix(path).suffix == ".csv":
        header = parse_csv_line(next(read_lines(path), (0, ""))[1])
        column = "tokens" if "tokens" in header and "text" not in header else "text"
        yield from _columns("stackoverflow", path, ("user_id", column), left_out)
        return
    for _, row in read_jsonl(path):
        text = row.get("text", row.get("tokens"))
        if row.get("user_id") is None or text is None:
            left_out[MISSING_COLUMNS] += 1
        else:
            yield str(row["user_id"]), _words(text)


def _leaf(path: Path) -> AuthoredTexts:
    """LEAF's form: for each user a list of texts, each a text or tokens or chunks of tokens."""
    leaf = read_json(path)
    users = leaf.get("user_data") if isinstance(leaf, dict) else None
    if not isinstance(users, dict):
        raise DataError(
            f"{path.name}: there is no 'user_data'; expected LEAF's form, {{users: […], user_data: {{user: {{x: […]}}}}}}."
        )
    for user, inner in users.items():
        texts = inner.get("x") if isinstance(inner, dict) else None
        if not isinstance(texts, list):
            raise DataError(
                f"{path.name}: user '{user}' has no list 'x'; expected LEAF's form, {{x: [texts]}} for each user."
            )
        for text in texts:
            yield user, _words(text)


def _words(text: Any) -> str:
    if isinstance(text, list):
        return " ".join(word for word in map(_words, text) if word)
    return text if isinstance(text, str) and text not in FILLING else ""
