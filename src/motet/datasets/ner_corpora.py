"""Named entity recognition: all corpora have BIO tags."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.conll import TaggedSentence, line_in_file, read_conll, split_tag, to_bio_columns
from motet.datasets.corpus import Corpus
from motet.datasets.original_files import check_folder, choose_file_set, find_file_sets, list_folder, walk_folders
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
ENTITY_TYPES = {
    "conll2003": "LOC MISC ORG PER",
    "wikiner": "LOC MISC ORG PER",
    "ploner": "LOC ORG PER",
    "wnut17": "corporation creative-work group location person product",
    "ontonotes": "CARDINAL DATE EVENT FAC GPE LANGUAGE LAW LOC MONEY NORP ORDINAL ORG PERCENT PERSON PRODUCT QUANTITY "
    "TIME WORK_OF_ART",
    "crossner": "academicjournal album algorithm astronomicalobject award band book chemicalcompound chemicalelement "
    "conference country discipline election enzyme event field literarygenre location magazine metrics misc "
    "musicalartist musicalinstrument musicgenre organisation person poem politicalparty politician product programlang "
    "protein researcher scientist song task theory university writer",
}


def conll2003(folder: Path, repair: bool = False) -> Corpus:
    """News with persons, locations, organizations, others. Tagging. From CoNLL-2003: eng.train, eng.testb."""
    hint = "put eng.train and eng.testb (or train.txt and test.txt) there"
    return _read_two_files("conll2003", folder, ("eng.train", "train.txt"), ("eng.testb", "test.txt"), hint, repair)


def wnut17(folder: Path, repair: bool = False) -> Corpus:
    """Tweets and comments with rare entities of six types. Tagging. From github.com/leondz/emerging_entities_17."""
    hint = "put wnut17train.conll and emerging.test.annotated there"
    return _read_two_files("wnut17", folder, ("wnut17train.conll",), ("emerging.test.annotated",), hint, repair)


def ontonotes(folder: Path, repair: bool = False) -> Corpus:
    """OntoNotes 5, entities of 18 types. Tagging. From LDC2013T19: onto.train.ner, onto.test.ner."""
    hint = "convert LDC2013T19 with the scripts of OntoNotes-5.0-NER-BIO"
    names = ("onto.train.ner", "train.txt"), ("onto.test.ner", "test.txt")
    return _read_two_files("ontonotes", folder, *names, hint, repair)


def _read_two_files(
    name: str, folder: Path, train: tuple[str, ...], test: tuple[str, ...], hint: str, repair: bool
) -> Corpus:
    """Read the training and the test file from the folder with the entity types of the corpus."""
    log = ReadLog(folder)
    sets = find_file_sets(name, folder, train, test, hint=hint)
    if len(sets) > 1:
        matching = [files for files in sets if _has_types(name, files[0], log, repair)]
        sets = matching or sets[:1]
    splits = []
    for path in choose_file_set(name, folder, sets):
        columns = read_conll(path, log, repair=repair)
        _check_types(name, path, columns, log)
        splits.append(columns)
    return build_corpus(name, "tagging", splits[0], splits[1], log)


def _has_types(name: str, path: Path, log: ReadLog, repair: bool) -> bool:
    """True if a file has entities of the corpus. Otherwise, the log tells why its folder is ignored."""
    try:
        unknown = _unknown_types(name, read_conll(path, ReadLog(log.root), repair=repair))
    except DataError:
        log.ignore(path.parent, "no entities in BIO")
        return False
    if unknown:
        log.ignore(path.parent, f"entity types {', '.join(sorted(unknown))}")
    return not unknown


def _unknown_types(name: str, columns: Columns) -> Set[str]:
    """Return the entity types in the tags that the corpus does not have."""
    types = {split_tag(tag)[1] for tag in {tag for tags in columns["tags"] for tag in tags}}
    return types - {""} - set(ENTITY_TYPES[name].split())


def _check_types(name: str, path: Path, columns: Columns, log: ReadLog) -> None:
    if unknown := sorted(_unknown_types(name, columns)):
        plural = "s" if len(unknown) > 1 else ""
        raise DataError(
            f"{name}: {log.relative_name(path)} has the entity type{plural} {', '.join(unknown)}; the types of {name} "
            f"are {', '.join(ENTITY_TYPES[name].split())}. Give the original files, or read yours with data.name=null."
        )


def wikiner(folder: Path, repair: bool = False) -> Corpus:
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
    parts = []
    for path in files:
        columns = to_bio_columns(line_in_file(path.name), _read_wikiner(path, log), log, repair)
        _check_types("wikiner", path, columns, log)
        parts.append(columns)
    columns = concatenate(parts)
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


def ploner(folder: Path, repair: bool = False) -> Corpus:
    """Seven corpora with persons, locations, organizations. Tagging; domain = corpus. From pfliu.com/InterpretNER."""
    hint = "put one folder of CoNLL files per corpus there, such as wnut16/train.txt"
    return _read_subcorpora("ploner", folder, hint, repair, trains_on_dev=True)


def crossner(folder: Path, repair: bool = False) -> Corpus:
    """Five fields with different entity types. Tagging; domain = field. From github.com/zliucr/CrossNER."""
    return _read_subcorpora("crossner", folder, "put the folders of ner_data there, such as ai/train.txt", repair)


def _read_subcorpora(name: str, folder: Path, hint: str, repair: bool, trains_on_dev: bool = False) -> Corpus:
    """Join several corpora. The test part of each is its test file, its dev file, or a share of the training rows.

    If `trains_on_dev`, and there is a test file, the dev file is part of the training set.
    """
    log = ReadLog(folder)
    train_parts: list[Columns] = []
    test_parts: list[Columns] = []

    def read(path: Path) -> Columns:
        columns = read_conll(path, log, repair=repair)
        _check_types(name, path, columns, log)
        return columns

    for domain, files in find_subcorpora(check_folder(name, folder), NER_SUFFIXES).items():
        train = files.get("train") or files.get(None)
        if train is None:
            continue
        test = files.get("test") or files.get("dev")
        train_files = [train, files["dev"]] if trains_on_dev and {"dev", "test"} <= files.keys() else [train]
        columns = concatenate(map(read, train_files))
        if test is not None:
            splits = columns, read(test)
        else:
            splits = cut_splits(build_corpus(f"{name}/{domain}", "tagging", columns, None, log))
        for parts, split in zip((train_parts, test_parts), splits, strict=True):
            parts.append(add_column(split, "domain", domain))
        for split_name, path in files.items():
            if path not in (*train_files, test):
                log.ignore(path, "all splits in one file" if split_name == "all" else "not used")
    if not train_parts:
        raise DataError(f"{name}: there is no training file in {folder}; {hint}.")
    return build_corpus(name, "tagging", concatenate(train_parts), concatenate(test_parts), log)


NER_READERS = {
    "conll2003": conll2003,
    "wnut17": wnut17,
    "wikiner": wikiner,
    "ploner": ploner,
    "ontonotes": ontonotes,
    "crossner": crossner,
}
