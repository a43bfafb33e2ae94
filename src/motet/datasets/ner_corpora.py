"""Named entity recognition: all corpora have BIO tags."""

from __future__ import annotations

from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.conll import TaggedSentence, read_conll, to_bio_columns
from motet.datasets.corpus import Corpus
from motet.datasets.original_files import check_folder, list_folder, require_file, walk_folders
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
from motet.datasets.text_files import read_lines

NER_SUFFIXES = ("", ".txt", ".conll", ".bio", ".tsv", ".ner", ".train", ".dev", ".test", ".testa", ".testb")


def conll2003(folder: Path) -> Corpus:
    """News with persons, locations, organizations, others. Tagging. From CoNLL-2003: eng.train, eng.testb."""
    hint = "put eng.train and eng.testb (or train.txt and test.txt) there"
    return _read_two_files("conll2003", folder, ("eng.train", "train.txt"), ("eng.testb", "test.txt"), hint)


def wnut17(folder: Path) -> Corpus:
    """Tweets and comments with rare entities of six types. Tagging. From github.com/leondz/emerging_entities_17."""
    hint = "put wnut17train.conll and emerging.test.annotated there"
    return _read_two_files("wnut17", folder, ("wnut17train.conll",), ("emerging.test.annotated",), hint)


def ontonotes(folder: Path) -> Corpus:
    """OntoNotes 5, entities of 18 types. Tagging. From LDC2013T19: onto.train.ner, onto.test.ner."""
    hint = "convert LDC2013T19 with the scripts of OntoNotes-5.0-NER-BIO"
    return _read_two_files("ontonotes", folder, ("onto.train.ner", "train.txt"), ("onto.test.ner", "test.txt"), hint)


def _read_two_files(name: str, folder: Path, train: tuple[str, ...], test: tuple[str, ...], hint: str) -> Corpus:
    files = [require_file(name, folder, *names, hint=hint) for names in (train, test)]
    log = ReadLog(folder)
    return build_corpus(name, "tagging", read_conll(files[0], log), read_conll(files[1], log), log)


def wikiner(folder: Path) -> Corpus:
    """Wikipedia with persons, locations, organizations, others. Tagging. From Nothman et al.: aij-wikiner-en-wp3."""
    files = [
        path
        for parent in walk_folders(check_folder("wikiner", folder))
        for path in list_folder(parent)
        if path.name.startswith("aij-wikiner-")
    ]
    files = [path for path in files if "-en-" in path.name] or files
    if not files:
        raise DataError(
            f"wikiner: there is no file 'aij-wikiner-en-wp3' in {folder}; put it there, compressed (.bz2) or not."
        )
    log = ReadLog(folder)
    columns = concatenate(to_bio_columns(path, _read_wikiner(path, log)) for path in files)
    # The versions wp2 and wp3 share sentences: a sentence must not be in both splits.
    groups = [" ".join(words) for words in columns.get("words", ())]
    return split_by_group("wikiner", "tagging", columns, groups, log)


def _read_wikiner(path: Path, log: ReadLog) -> list[TaggedSentence]:
    """Read one sentence per line, with tokens of the form word|part of speech|tag."""
    sentences = []
    for number, line in read_lines(path, log):
        tokens = [token.rsplit("|", 2) for token in line.strip().split(" ") if token]
        if tokens and all(len(token) == 1 for token in tokens):
            log.drop("lines without tags", path, number)
        elif tokens:
            for token in tokens:
                if len(token) != 3 or not token[0]:
                    raise DataError(
                        f"{path.name}, line {number}: '{'|'.join(token)}' is not word|part of speech|tag. "
                        "Fix the line or download the file again."
                    )
            words, _, tags = zip(*tokens, strict=True)
            sentences.append(TaggedSentence(list(words), list(tags), [number] * len(words)))
    return sentences


def ploner(folder: Path) -> Corpus:
    """Seven corpora with persons, locations, organizations. Tagging; domain = corpus. From pfliu.com/InterpretNER."""
    hint = "put one folder of CoNLL files per corpus there, such as wnut16/train.txt"
    return _read_subcorpora("ploner", folder, hint)


def crossner(folder: Path) -> Corpus:
    """Five fields with different entity types. Tagging; domain = field. From github.com/zliucr/CrossNER."""
    return _read_subcorpora("crossner", folder, "put the folders of ner_data there, such as ai/train.txt")


def _read_subcorpora(name: str, folder: Path, hint: str) -> Corpus:
    """Join several corpora. The test part of each is its test file, its dev file, or a share of the training rows."""
    log = ReadLog(folder)
    train_parts: list[Columns] = []
    test_parts: list[Columns] = []
    for domain, files in find_subcorpora(check_folder(name, folder), NER_SUFFIXES).items():
        train = files.get("train") or files.get(None)
        if train is None:
            continue
        test = files.get("test") or files.get("dev")
        if test is not None:
            splits = read_conll(train, log), read_conll(test, log)
        else:
            splits = cut_splits(build_corpus(f"{name}/{domain}", "tagging", read_conll(train, log), None, log))
        for parts, columns in zip((train_parts, test_parts), splits, strict=True):
            parts.append(add_column(columns, "domain", domain))
    if not train_parts:
        raise DataError(f"{name}: there is no training file in {folder}; {hint}.")
    return build_corpus(name, "tagging", concatenate(train_parts), concatenate(test_parts), log)
