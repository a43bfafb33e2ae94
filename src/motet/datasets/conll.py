"""CoNLL files: one token per line, tag columns, and an empty line between sentences.

Entities are tagged in one of four schemes. Every scheme is converted to BIO:

| scheme | a three-word entity of type X, followed directly by a one-word entity of type X |
| --- | --- |
| BIO (IOB2) | B-X I-X I-X B-X |
| IOB1 | I-X I-X I-X B-X (B only separates adjacent entities of one type) |
| BIOES | B-X I-X E-X S-X |
| BILOU | B-X I-X L-X U-X |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from motet.core.errors import DataError
from motet.datasets.read_log import ReadLog
from motet.datasets.splits import Columns
from motet.datasets.text_files import read_lines

END_PREFIXES = {"BIOES": ("E", "S"), "BILOU": ("L", "U")}  # prefix of an entity's last word, and of a one-word entity
HEADER_TAGS = ("tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags")  # names of the column of the tags
ONE_WORD_SHARE = 0.5  # of the sentences; more of them are lines of a table with one word each
MIN_SENTENCES = 20  # shares of fewer mean little
REPAIRED_TAGS = "stray I- tags turned into B- tags"
SCHEMES = ("BIO", "IOB1", *END_PREFIXES)


class TaggedSentence(NamedTuple):
    """Words with their tags and line numbers."""

    words: list[str]
    tags: list[str]
    lines: list[int]


def split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into prefix and entity type: `B-creative-work` into B and creative-work, `O` into O and ""."""
    prefix, _, entity_type = tag.partition("-")
    return prefix, entity_type


def _starts_entity(tags: Sequence[str], i: int) -> bool:
    """True if the previous word does not belong to an entity of the same type."""
    return i == 0 or split_tag(tags[i - 1])[1] != split_tag(tags[i])[1]


def detect_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """Infer the tag scheme of a file from its prefixes and from how entities start."""
    prefixes: set[str] = set()
    start_prefixes: set[str] = set()
    for tags in sentences:
        for i, tag in enumerate(tags):
            prefix = split_tag(tag)[0]
            prefixes.add(prefix)
            if prefix in ("B", "I") and _starts_entity(tags, i):
                start_prefixes.add(prefix)
    for scheme, ends in END_PREFIXES.items():
        if prefixes & set(ends):
            return scheme
    # If some entities start with I and some with B, the I is an error in a BIO file.
    return "IOB1" if start_prefixes == {"I"} else "BIO"


def to_bio(tags: Sequence[str], scheme: str) -> list[str]:
    """Convert tags to BIO. Invalid tags stay invalid, so that `find_invalid_tag` reports them."""
    bio = []
    for i, tag in enumerate(tags):
        prefix, entity_type = split_tag(tag)
        if scheme in END_PREFIXES:
            last, only = END_PREFIXES[scheme]
            prefix = {last: "I", only: "B"}.get(prefix, prefix)
        elif scheme == "IOB1" and prefix == "I" and _starts_entity(tags, i):
            prefix = "B"
        bio.append(f"{prefix}-{entity_type}" if entity_type else prefix)
    return bio


def find_invalid_tag(tags: Sequence[str]) -> tuple[int, str] | None:
    """Return the index of the first tag that is invalid in BIO and what was expected there, or None."""
    for i, tag in enumerate(tags):
        prefix, entity_type = split_tag(tag)
        if tag == "O":
            continue
        if prefix not in ("B", "I") or not entity_type:
            return i, "O, or one of B-, I-, E-, S-, L- and U- with a type, such as B-PER"
        if prefix == "I" and _starts_entity(tags, i):
            context = f"after '{tags[i - 1]}'" if i else "at the start of a sentence"
            return i, f"O or B-{entity_type} {context}"
    return None


def read_sentences(path: Path, log: ReadLog, word: int = 0, tag: int = -1) -> list[TaggedSentence]:
    """Read the sentences of a file, with unconverted tags."""
    return parse_sentences(path.name, read_lines(path, log), word, tag)


def split_fields(line: str) -> list[str]:
    """Return the columns of a line. Only spaces and tabs separate them: a word may be another space of Unicode."""
    return re.split("[ \t]+", line.strip(" \t"))


def split_columns(line: str, min_columns: int = 2) -> list[str]:
    """Return the columns of a line, which tabs separate, or spaces if there are too few tabs."""
    columns = line.rstrip(" \t").split("\t") if "\t" in line.strip() else []
    return columns if len(columns) >= min_columns else split_fields(line)


def parse_sentences(
    name: str, numbered_lines: Iterable[tuple[int, str]], word: int = 0, tag: int = -1
) -> list[TaggedSentence]:
    """Parse sentences with unconverted tags. Columns are separated by tabs, or by spaces if a line has no tab."""
    sentences: list[TaggedSentence] = []
    sentence = TaggedSentence([], [], [])
    min_columns = max(i + 1 if i >= 0 else -i for i in (word, tag, 1))
    for number, line in numbered_lines:
        if not line.strip() or line.startswith("-DOCSTART-"):
            if sentence.words:
                sentences.append(sentence)
                sentence = TaggedSentence([], [], [])
            continue
        columns = split_columns(line, min_columns)
        if len(columns) < min_columns or not columns[word]:
            raise DataError(
                f"{name}, line {number}: '{line.strip()}' has {len(columns)} of at least {min_columns} columns; "
                "expected a word and its tag, separated by a tab or spaces. Fix the line or download the file again; remove "
                "lines with comments."
            )
        sentence.words.append(columns[word].strip(" ") or columns[word])
        sentence.tags.append(columns[tag].strip())
        sentence.lines.append(number)
    return [*sentences, sentence] if sentence.words else sentences


def repair_bio(tags: Sequence[str]) -> list[str]:
    """Turn each stray I- tag, which continues no entity, into a B- tag."""
    return [f"B{tag[1:]}" if tag.startswith("I-") and _starts_entity(tags, i) else tag for i, tag in enumerate(tags)]


def to_bio_columns(
    describe_line: Callable[[int], str], sentences: Iterable[TaggedSentence], log: ReadLog, repair: bool = False
) -> Columns:
    """Return the columns `words` and `tags`, with tags in BIO. An invalid tag raises an error that names its line.

    If `repair`, stray I- tags are turned into B- tags and counted.
    """
    sentences = list(sentences)
    scheme = detect_scheme(sentence.tags for sentence in sentences)
    columns: Columns = {"words": [], "tags": []}
    single = sum(len(sentence.words) == 1 for sentence in sentences)
    if len(sentences) >= MIN_SENTENCES and single >= ONE_WORD_SHARE * len(sentences):
        log.warn(
            f"{single:,} of {len(sentences):,} sentences have one word. Write the words of a sentence into one row."
        )
    for sentence in sentences:
        tags = to_bio(sentence.tags, scheme)
        if repair:
            repaired = repair_bio(tags)
            log.change(REPAIRED_TAGS, sum(a != b for a, b in zip(tags, repaired, strict=True)))
            tags = repaired
        invalid = find_invalid_tag(tags)
        if invalid is not None:
            i, expected = invalid
            is_stray = tags[i].startswith("I-")
            is_comment = sentence.words[i].startswith("#")
            raise DataError(
                f"{describe_line(sentence.lines[i])}: tag '{sentence.tags[i]}' of '{sentence.words[i]}' is invalid in "
                f"{scheme}, the scheme of the file; expected {expected}. "
                + (
                    "Set data.repair=bio to turn such tags into B- tags, or fix the tag."
                    if is_stray
                    else "Fix the tag."
                )
                + (" If the line is a comment, remove it." if is_comment else "")
                + (" If it is a header, remove it." if tags[i].lower() in HEADER_TAGS else "")
            )
        columns["words"].append(sentence.words)
        columns["tags"].append(tags)
    return columns


def line_in_file(name: str) -> Callable[[int], str]:
    """Return a function that describes a line of a file."""
    return lambda line: f"{name}, line {line}"


def read_conll(path: Path, log: ReadLog, word: int = 0, tag: int = -1, repair: bool = False) -> Columns:
    """Read a CoNLL file; `word` and `tag` are the indices of its columns."""
    return to_bio_columns(line_in_file(path.name), read_sentences(path, log, word, tag), log, repair)
