"""Read a user's own tagged files: CoNLL with any suffix, and OntoNotes' .gold_conll."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from motet.core.errors import DataError
from motet.datasets.column_names import add_fixed_columns
from motet.datasets.conll import (
    TaggedSentence,
    line_in_file,
    parse_sentences,
    split_columns,
    split_fields,
    to_bio_columns,
)
from motet.datasets.data_file import DataFile
from motet.datasets.raw_table import TableBuilder

TAG = re.compile(r"O|[BIESLU]-\S+")
GOLD_WORD, GOLD_ENTITY = 3, 10  # columns of a .gold_conll file
GENRES = ("bc", "bn", "mz", "nw", "pt", "tc", "wb")
SNIFFED_LINES = 300
MAX_COLUMNS = 20  # of a CoNLL file; OntoNotes has the most


def read_conll_file(file: DataFile, table: TableBuilder) -> None:
    """Read words and tags: the first and the last column."""
    counts = ColumnCounts()
    sentences = parse_sentences(file.name, counts.observe(file.read_lines()))
    counts.write_warnings(file)
    if len(sentences) == 1:
        file.log.warn(f"{file.name}: there is one sentence. Check that empty lines separate the sentences.")
    _check_words(file.name, [sentence.words for sentence in sentences if len(sentence.words) > 1])
    columns = to_bio_columns(line_in_file(file.name), sentences, file.log, file.options.repair_tags)
    add_fixed_columns(file, table, columns, "sentence", "CoNLL's format")


class ColumnCounts:
    """Counts the columns of the lines, and the tags in columns that are not read."""

    def __init__(self) -> None:
        self.widths: Counter[int] = Counter()
        self.tags: Counter[int] = Counter()  # number of a column -> lines with a tag in it
        self.entities: Counter[int] = Counter()  # those with another tag than O

    def observe(self, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        for number, line in lines:
            if line.strip() and not line.startswith("-DOCSTART-"):
                columns = split_columns(line)
                self.widths[len(columns)] += 1
                tagged = [i for i, value in enumerate(columns[1:-1], 2) if TAG.fullmatch(value)]
                self.tags.update(tagged)
                self.entities.update(i for i in tagged if columns[i - 1] != "O")
            yield number, line

    def write_warnings(self, file: DataFile) -> None:
        if len(self.widths) > 1:
            sizes = ", ".join(f"{width} columns ({count:,})" for width, count in self.widths.most_common(5))
            file.log.warn(
                f"{file.name}: the lines have {sizes}. The first is read as the word and the last as its tag; a word with "
                "spaces loses all but its first part."
            )
            return
        (width, size), *_ = self.widths.items() or [(0, 0)]
        others = [i for i, count in self.tags.items() if count == size and self.entities[i]]
        if others:
            names = " and column ".join(map(str, sorted(others)))
            file.log.warn(
                f"{file.name}: column {names} of {width} also holds tags. Only those of column {width} are read; to read "
                "others, remove the columns after them."
            )


def _check_words(name: str, sentences: Sequence[Sequence[str]]) -> None:
    """Raise an error if the first column counts the words, as in CoNLL-U, or names the document."""
    counts = all(words == [str(int(words[0] != "0") + i) for i in range(len(words))] for words in sentences)
    if sentences and (counts or (len(sentences) > 1 and all(len(set(words)) == 1 for words in sentences))):
        raise DataError(
            f"{name}: the first column of a sentence is {', '.join(sentences[0][:4])}, which are no words. Keep two columns: "
            "the words and their tags."
        )


def looks_like_conll(lines: Sequence[str], min_share: float) -> bool:
    """True if so many lines have a word and a BIO tag, or are blank; and at least one tag is not O."""
    rows = [split_fields(line) for line in lines if line.strip() and not line.startswith("-DOCSTART-")]
    tags = [row[-1] for row in rows if 2 <= len(row) <= MAX_COLUMNS and TAG.fullmatch(row[-1])]
    return len(tags) >= max(2, min_share * len(rows)) and set(tags) != {"O"}


def read_gold_conll(file: DataFile, table: TableBuilder) -> None:
    """Read the words and entities of a CoNLL-2012 file. The genre, part of the path, is the domain."""
    sentences = list(_parse_gold_sentences(file))
    columns = to_bio_columns(line_in_file(file.name), sentences, file.log, file.options.repair_tags)
    genre = next((part for part in reversed(file.path.parent.parts) if part in GENRES), None)
    if genre is not None:
        columns["domain"] = [genre] * len(sentences)
    add_fixed_columns(file, table, columns, "sentence", "CoNLL-2012's format")


def _parse_gold_sentences(file: DataFile) -> Iterator[TaggedSentence]:
    sentence = TaggedSentence([], [], [])
    entity = ""
    for number, line in file.read_lines():
        if line.strip() and not line.startswith("#"):
            fields = line.split()
            if len(fields) <= GOLD_ENTITY:
                raise DataError(
                    f"{file.name}, line {number}: the line has {len(fields)} columns; CoNLL-2012 has at least "
                    f"{GOLD_ENTITY + 1}. Download the file again."
                )
            if fields[GOLD_WORD] == "[WORD]":
                raise DataError(
                    f"{file.name}, line {number}: the file has no words. Merge it with the texts of OntoNotes first "
                    "(skeleton2conll.sh)."
                )
            tag, entity = _to_tag(file, number, fields[GOLD_ENTITY], entity)
            sentence.words.append(fields[GOLD_WORD])
            sentence.tags.append(tag)
            sentence.lines.append(number)
        elif sentence.words:
            yield sentence
            sentence, entity = TaggedSentence([], [], []), ""
    if sentence.words:
        yield sentence


def _to_tag(file: DataFile, number: int, bracket: str, entity: str) -> tuple[str, str]:
    """Return the BIO tag of `(PERSON*`, `*`, `*)` or `(GPE)`, and the entity that continues after it."""
    match = re.fullmatch(r"(?:\(([^()*]+))?\*?(\))?", bracket)
    if match is None or (match[1] and entity):
        raise DataError(
            f"{file.name}, line {number}: '{bracket}' is not a named entity of CoNLL-2012, such as (PERSON*."
        )
    name = match[1] or entity
    tag = f"B-{match[1]}" if match[1] else f"I-{entity}" if entity else "O"
    return tag, "" if match[2] else name
