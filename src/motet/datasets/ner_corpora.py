"""Names in sentences: corpora for named-entity recognition, all handed on in BIO."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.conll import Sentence, read_conll, to_bio_columns
from motet.datasets.corpus import Corpus
from motet.datasets.original_files import check_folder, list_folder, read_lines, require_file, walk_folders
from motet.datasets.splits import (
    Columns,
    add_column,
    build_corpus,
    concatenate,
    describe_source,
    find_subcorpora,
    split_by_group,
)

COLUMN_FILES = ("", ".txt", ".conll", ".bio", ".tsv", ".ner", ".train", ".dev", ".test", ".testa", ".testb")


def conll2003(folder: Path) -> Corpus:
    """News with persons, places, organisations and others (CoNLL-2003 English: eng.train, eng.testb)."""
    hint = "put eng.train and eng.testb (or train.txt and test.txt) there"
    return _two_files("conll2003", folder, ("eng.train", "train.txt"), ("eng.testb", "test.txt"), hint)


def wnut17(folder: Path) -> Corpus:
    """Tweets and comments with rare names of six types (github.com/leondz/emerging_entities_17)."""
    hint = "put wnut17train.conll and emerging.test.annotated there"
    return _two_files("wnut17", folder, ("wnut17train.conll",), ("emerging.test.annotated",), hint)


def ontonotes(folder: Path) -> Corpus:
    """OntoNotes 5 with names of 18 types (LDC2013T19 in columns: onto.train.ner, onto.test.ner, word first and tag last)."""
    hint = "make it from LDC2013T19 with the scripts of OntoNotes-5.0-NER-BIO"
    return _two_files("ontonotes", folder, ("onto.train.ner", "train.txt"), ("onto.test.ner", "test.txt"), hint)


def _two_files(name: str, folder: Path, train: tuple[str, ...], test: tuple[str, ...], hint: str) -> Corpus:
    files = [require_file(name, folder, *names, hint=hint) for names in (train, test)]
    return build_corpus(name, "tagging", read_conll(files[0]), read_conll(files[1]), describe_source(files))


def wikiner(folder: Path) -> Corpus:
    """Wikipedia with persons, places, organisations and others (Nothman et al.: aij-wikiner-en-wp2, aij-wikiner-en-wp3)."""
    every = [
        path
        for place in walk_folders(check_folder("wikiner", folder))
        for path in list_folder(place)
        if path.name.startswith("aij-wikiner-")
    ]
    files = [path for path in every if "-en-" in path.name] or every
    if not files:
        raise DataError(
            f"wikiner: there is no file 'aij-wikiner-en-wp3' in {folder}; put it there, packed (.bz2) or not."
        )
    left_out: Counter[str] = Counter()
    rows = concatenate(to_bio_columns(path, _bars(path, left_out)) for path in files)
    # The versions wp2 and wp3 share sentences; these must not be in both parts.
    groups = [" ".join(words) for words in rows.get("words", ())]
    return split_by_group("wikiner", "tagging", rows, groups, source=describe_source(files, left_out))


def _bars(path: Path, left_out: Counter[str]) -> list[Sentence]:
    """Sentences of one line each: word|part of speech|tag, parted by blanks."""
    made = []
    for number, line in read_lines(path):
        tokens = [token.rsplit("|", 2) for token in line.strip().split(" ") if token]
        if tokens and all(len(token) == 1 for token in tokens):
            left_out["lines without tags"] += 1
        elif tokens:
            for token in tokens:
                if len(token) != 3 or not token[0]:
                    raise DataError(
                        f"{path.name}, line {number}: '{'|'.join(token)}' is not word|part of speech|tag; "
                        "mend the line or fetch the file again."
                    )
            words, _, tags = zip(*tokens, strict=True)
            made.append(Sentence(list(words), list(tags), [number] * len(words)))
    return made


def ploner(folder: Path) -> Corpus:
    """Persons, places, organisations in seven sub-corpora, each CoNLL columns; domain = sub-corpus (pfliu.com/InterpretNER)."""
    return _domains(
        "ploner", folder, "put a folder of CoNLL columns for each sub-corpus there, such as wnut16/train.txt"
    )


def crossner(folder: Path) -> Corpus:
    """Sentences of five fields of knowledge, each with entity types of its own; domain = field (github.com/zliucr/CrossNER)."""
    return _domains("crossner", folder, "put the folders of ner_data there, such as ai/train.txt")


def _domains(name: str, folder: Path, hint: str) -> Corpus:
    """One corpus of several, each with a test part: its own, its dev part, or a share."""
    trains: list[Columns] = []
    tests: list[Columns] = []
    for domain, files in find_subcorpora(check_folder(name, folder), COLUMN_FILES).items():
        first = files.get("train") or files.get(None)
        if first is None:
            continue
        second = files.get("test") or files.get("dev")
        if second is not None:
            parts = [read_conll(first), read_conll(second)]
        else:
            parts = _halves(f"{name}/{domain}", read_conll(first), first)
        for made, rows in zip((trains, tests), parts, strict=True):
            made.append(add_column(rows, "domain", domain))
    if not trains:
        raise DataError(f"{name}: there is no training file in {folder}; {hint}.")
    domains = [rows["domain"][0] for rows in trains if rows["domain"]]
    return build_corpus(name, "tagging", concatenate(trains), concatenate(tests), describe_source(domains))


def _halves(name: str, rows: Columns, path: Path) -> list[Columns]:
    corpus = build_corpus(name, "tagging", rows, None, describe_source([path]))
    cuts = (slice(None, corpus.num_train), slice(corpus.num_train, None))
    return [{key: list(column[cut]) for key, column in corpus.columns.items()} for cut in cuts]
