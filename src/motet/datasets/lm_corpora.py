"""Language modeling: Shakespeare, Reddit and Stack Overflow, with the author of each text as client."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from motet.core.errors import DataError
from motet.datasets.compression import strip_compression_suffix
from motet.datasets.corpus import Corpus
from motet.datasets.original_files import (
    MISSING_COLUMNS,
    check_folder,
    list_folder,
    parse_csv_line,
    read_columns,
    read_json,
    read_jsonl,
    require_file,
    walk_folders,
)
from motet.datasets.read_log import ReadLog
from motet.datasets.splits import (
    Columns,
    build_corpus,
    concatenate,
    parse_split_name,
)
from motet.datasets.text_files import read_lines, read_text

ROLE = re.compile(r"([A-Z][^:\n]{0,60}):\s*$")
DELETED = ("[deleted]", "[removed]")
SPECIAL_TOKENS = {"<PAD>", "<BOS>", "<EOS>"}  # LEAF pads its chunks of tokens to one length

AuthoredTexts = Iterator[tuple[str, str]]  # author and text
AuthorReader = Callable[[Path, ReadLog], AuthoredTexts]


def shakespeare(folder: Path) -> Corpus:
    """Speeches from Shakespeare's plays. Language modeling; client = role. From char-rnn: input.txt."""
    names = ("input.txt", "shakespeare.txt", "shakespeare_input.txt")
    path = require_file("shakespeare", folder, *names, hint="expected blocks of a role, a colon and lines.")
    log = ReadLog(folder)
    columns: Columns = {"text": [], "client": []}
    spellings: dict[str, str] = {}  # some roles are spelled in upper and in lower case
    for block in re.split(r"\n\s*\n", read_text(path, log).strip()):
        first_line, _, speech = block.strip().partition("\n")
        role = ROLE.match(first_line)
        if role is None or not speech.strip():
            reason = "blocks without a role" if role is None else "roles without a speech"
            log.drop(reason, path, f"'{first_line[:40]}'")
            continue
        columns["text"].append(speech.strip())
        columns["client"].append(spellings.setdefault(role[1].lower(), role[1]))
    return build_corpus("shakespeare", "lm", columns, None, log)


def reddit(folder: Path) -> Corpus:
    """Reddit comments. Language modeling; client = author. From LEAF (JSON), or CSV with author and body."""
    log = ReadLog(folder)
    files = _find_splits(check_folder("reddit", folder), (".json",))
    if files:
        return _build_corpus("reddit", files, _read_leaf, log)
    files = _find_splits(folder, (".csv",))
    if not files:
        raise DataError(
            f"reddit: there is no .json or .csv file in {folder}; expected LEAF's JSON, or CSV with author and body."
        )

    return _build_corpus("reddit", files, _read_comments, log)


def stackoverflow(folder: Path) -> Corpus:
    """Stack Overflow posts. Language modeling; client = user. From CSV or JSONL with user_id and text or tokens."""
    log = ReadLog(folder)
    files = _find_splits(check_folder("stackoverflow", folder), (".csv", ".jsonl"))
    if not files:
        raise DataError(
            f"stackoverflow: there is no .csv or .jsonl file in {folder}; expected rows with user_id and text or "
            "tokens. Export the .h5 files of TensorFlow Federated to one of these formats."
        )
    return _build_corpus("stackoverflow", files, _read_posts, log)


def _find_splits(folder: Path, suffixes: tuple[str, ...]) -> dict[str, list[Path]]:
    """Find training and test files by their names or folders. A dev split replaces a missing training or test split."""
    splits: dict[str, list[Path]] = {}
    for path in (path for parent in walk_folders(folder) for path in list_folder(parent)):
        if path.is_file() and strip_compression_suffix(path).suffix in suffixes:
            names = (path, *(Path(parent) for parent in path.relative_to(folder).parts[:-1]))
            split = next((split for split, _ in map(parse_split_name, names) if split), "train")
            splits.setdefault(split, []).append(path)
    if "train" not in splits and splits:
        splits["train"] = splits.pop("dev" if "dev" in splits else "test")
    if "test" not in splits and "dev" in splits:
        splits["test"] = splits["dev"]
    return {split: files for split, files in splits.items() if split != "dev"}


def _build_corpus(name: str, files: dict[str, list[Path]], read: AuthorReader, log: ReadLog) -> Corpus:
    splits = {
        split: concatenate(_to_columns(read(path, log), path, log) for path in paths) for split, paths in files.items()
    }
    return build_corpus(name, "lm", splits["train"], splits.get("test"), log)


def _to_columns(authored_texts: AuthoredTexts, path: Path, log: ReadLog) -> Columns:
    """Return the columns `text` and `client`, without empty and deleted texts."""
    columns: Columns = {"text": [], "client": []}
    for number, (author, text) in enumerate(authored_texts, 1):
        if not text.strip() or text.strip() in DELETED or not author.strip() or author in DELETED:
            log.drop("texts that are empty or deleted", path, f"text {number}")
            continue
        columns["text"].append(text.strip())
        columns["client"].append(author)
    return columns


def _read_comments(path: Path, log: ReadLog) -> AuthoredTexts:
    return _read_csv("reddit", path, ("author", "body"), log)


def _read_csv(corpus: str, path: Path, names: tuple[str, str], log: ReadLog) -> AuthoredTexts:
    for _, (author, text) in read_columns(path, names, log, corpus):
        yield author, text


def _read_posts(path: Path, log: ReadLog) -> AuthoredTexts:
    if strip_compression_suffix(path).suffix == ".csv":
        header = parse_csv_line(next(read_lines(path, log), (0, ""))[1])
        column = "tokens" if "tokens" in header and "text" not in header else "text"
        yield from _read_csv("stackoverflow", path, ("user_id", column), log)
        return
    for number, row in read_jsonl(path, log):
        text = row.get("text", row.get("tokens"))
        if row.get("user_id") is None or text is None:
            log.drop(MISSING_COLUMNS, path, number)
        else:
            yield str(row["user_id"]), _join_tokens(text)


def _read_leaf(path: Path, log: ReadLog) -> AuthoredTexts:
    """Read LEAF's format: for each user a list of texts, each a string, a list of tokens or a list of token chunks."""
    leaf = read_json(path, log)
    users = leaf.get("user_data") if isinstance(leaf, dict) else None
    if not isinstance(users, dict):
        raise DataError(
            f"{path.name}: there is no 'user_data'; expected LEAF's format, "
            "{users: […], user_data: {user: {x: […]}}}."
        )
    for user, data in users.items():
        texts = data.get("x") if isinstance(data, dict) else None
        if not isinstance(texts, list):
            raise DataError(
                f"{path.name}: user '{user}' has no list 'x'; expected LEAF's format, {{x: [texts]}} for each user."
            )
        for text in texts:
            yield user, _join_tokens(text)


def _join_tokens(text: Any) -> str:
    """Join nested lists of tokens with spaces, without LEAF's special tokens."""
    if isinstance(text, list):
        return " ".join(word for word in map(_join_tokens, text) if word)
    return text if isinstance(text, str) and text not in SPECIAL_TOKENS else ""
