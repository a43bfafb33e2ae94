"""Tagged words in columns, a word a line, as the CoNLL shared tasks have them; and the schemes in which entities are tagged.

| scheme | an entity X of three words, then one of one word beside it |
| --- | --- |
| BIO (IOB2) | B-X I-X I-X B-X |
| IOB1 | I-X I-X I-X B-X: B only where two entities of a type touch |
| BIOES | B-X I-X E-X S-X |
| BILOU | B-X I-X L-X U-X |

Whatever a file has, what is handed on is BIO.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from motet.core.errors import DataError
from motet.datasets.original_files import read_lines
from motet.datasets.splits import Columns

END_PREFIXES = {
    "BIOES": ("E", "S"),
    "BILOU": ("L", "U"),
}  # what each calls the last word of an entity, and its only one
SCHEMES = ("BIO", "IOB1", *END_PREFIXES)


class Sentence(NamedTuple):
    """Words with their tags, and the line of the file where each stands."""

    words: list[str]
    tags: list[str]
    lines: list[int]


def split_tag(tag: str) -> tuple[str, str]:
    """`B-creative-work` is B and creative-work; `O` is O and nothing."""
    prefix, _, kind = tag.partition("-")
    return prefix, kind


def _begins(tags: Sequence[str], i: int) -> bool:
    """Whether the word before is of no entity of this type."""
    return i == 0 or split_tag(tags[i - 1])[1] != split_tag(tags[i])[1]


def detect_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """The scheme of some tags, told by their prefixes and by how entities begin."""
    seen: set[str] = set()
    begun: set[str] = set()
    for tags in sentences:
        for i, tag in enumerate(tags):
            prefix = split_tag(tag)[0]
            seen.add(prefix)
            if prefix in ("B", "I") and _begins(tags, i):
                begun.add(prefix)
    for scheme, ends in END_PREFIXES.items():
        if seen & set(ends):
            return scheme
    return "IOB1" if begun == {"I"} else "BIO"  # an entity begun by I beside one begun by B is an error, not a scheme


def to_bio(tags: Sequence[str], scheme: str) -> list[str]:
    """The same entities in BIO; what was no entity in its scheme stays wrong, for `find_invalid_tag` to find."""
    made = []
    for i, tag in enumerate(tags):
        prefix, kind = split_tag(tag)
        if scheme in END_PREFIXES:
            last, only = END_PREFIXES[scheme]
            prefix = {last: "I", only: "B"}.get(prefix, prefix)
        elif scheme == "IOB1" and prefix == "I" and _begins(tags, i):
            prefix = "B"
        made.append(f"{prefix}-{kind}" if kind else prefix)
    return made


def from_bio(tags: Sequence[str], scheme: str) -> list[str]:
    """The same entities in another scheme."""
    made = []
    for i, tag in enumerate(tags):
        prefix, kind = split_tag(tag)
        if prefix != "O" and scheme in END_PREFIXES:
            last, only = END_PREFIXES[scheme]
            goes_on = i + 1 < len(tags) and tags[i + 1] == f"I-{kind}"
            prefix = prefix if goes_on else {"B": only, "I": last}[prefix]
        elif prefix == "B" and scheme == "IOB1" and _begins(tags, i):
            prefix = "I"
        made.append(f"{prefix}-{kind}" if kind else prefix)
    return made


def find_invalid_tag(tags: Sequence[str]) -> tuple[int, str] | None:
    """The first tag that does not fit BIO, and what was expected there."""
    for i, tag in enumerate(tags):
        prefix, kind = split_tag(tag)
        if tag == "O":
            continue
        if prefix not in ("B", "I") or not kind:
            return i, "O, or B-, I- (E-, S-, L-, U-) and a type"
        if prefix == "I" and _begins(tags, i):
            before = f"after '{tags[i - 1]}'" if i else "at the start of a sentence"
            return i, f"O or B-{kind} {before}"
    return None


def read_sentences(path: Path, word: int = 0, tag: int = -1) -> list[Sentence]:
    """The sentences of a file, tags as they stand there. A tab parts columns, or blanks where there is no tab."""
    made: list[Sentence] = []
    now = Sentence([], [], [])
    least = max(i + 1 if i >= 0 else -i for i in (word, tag, 1))
    for number, line in read_lines(path):
        if not line.strip() or line.startswith("-DOCSTART-"):
            if now.words:
                made.append(now)
                now = Sentence([], [], [])
            continue
        columns = line.rstrip(" \t").split("\t") if "\t" in line.strip() else []
        if len(columns) < least:
            columns = re.split("[ \t]+", line.strip(" \t"))
        if len(columns) < least or not columns[word]:
            raise DataError(
                f"{path.name}, line {number}: '{line.strip()}' has {len(columns)} of at least {least} columns; "
                "expected a word and its tag, parted by a tab or blanks. Mend the line or fetch the file again."
            )
        now.words.append(columns[word].strip(" ") or columns[word])
        now.tags.append(columns[tag].strip())
        now.lines.append(number)
    return [*made, now] if now.words else made


def to_bio_columns(path: Path, sentences: Iterable[Sentence]) -> Columns:
    """Columns `words` and `tags` of a file's sentences, in BIO whatever it had; tags that are no entities are an error."""
    every = list(sentences)
    scheme = detect_scheme(sentence.tags for sentence in every)
    rows: Columns = {"words": [], "tags": []}
    for sentence in every:
        tags = to_bio(sentence.tags, scheme)
        wrong = find_invalid_tag(tags)
        if wrong is not None:
            at, expected = wrong
            raise DataError(
                f"{path.name}, line {sentence.lines[at]}: tag '{sentence.tags[at]}' of '{sentence.words[at]}' does not fit; "
                f"the file is in {scheme}, and {expected} was expected. Mend the tag or fetch the file again."
            )
        rows["words"].append(sentence.words)
        rows["tags"].append(tags)
    return rows


def read_conll(path: Path, word: int = 0, tag: int = -1) -> Columns:
    return to_bio_columns(path, read_sentences(path, word, tag))
