"""Find the files of a user's own folder, and what each is: training or test data, a label, a client, a domain."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from motet.core.errors import DataError
from motet.datasets.compression import is_archive, strip_compression_suffix
from motet.datasets.data_file import DataFile, ReadOptions
from motet.datasets.file_formats import (
    FDU_MTL,
    GOLD_CONLL,
    LOCAL_SUFFIXES,
    REVIEW,
    SUPPORTED_FORMATS,
    TEXT,
    WHOLE_TEXT,
    FileFormat,
    find_format,
    guess_format,
)
from motet.datasets.folder_listing import list_files, list_visible
from motet.datasets.read_log import ReadLog
from motet.datasets.read_report import UNKNOWN_FORMAT
from motet.datasets.splits import parse_split_name

DOCUMENTS = re.compile(
    r"(readme|licen[cs]e|copying|citation|changelog|notice|authors)\b.*|.*\.(md|rst|pdf|html?)"
    r"|dataset_infos?\.json|_SUCCESS|_(common_)?metadata",  # of Hugging Face, Spark and Parquet
    re.I,
)
UNLABELED = ("unsup", "unlabeled", "unlabelled", "unsupervised", "unlabel")
# Names of the parts of one table: of Hugging Face (with a hash), Spark and BigQuery.
SHARD = re.compile(r"\d+-of-\d+(-[0-9a-f]{16})?|\b(part|shard|chunk|fold)[-_]?\d+([-_.].*)?$|^0{4}\d{8}$", re.I)
COUNTED_SHARD = re.compile(r"(?P<table>.*?)\d+-of-(?P<count>\d+)")
HIVE_FOLDER = re.compile(r"(\w+)=.+")
TEXT_SUFFIXES = ("", ".txt")


@dataclass(frozen=True)
class FilePart:
    """A file of a corpus."""

    path: Path
    file_format: FileFormat
    split: str = "train"
    constants: Mapping[str, str] = field(default_factory=dict)  # columns with one value for the whole file


def plan_folder(folder: Path, options: ReadOptions, log: ReadLog) -> list[FilePart]:
    """Return the files of a folder in the order in which they are read."""
    base = _skip_wrappers(folder)
    if options.files is None and options.task in (None, "classification") and not options.column_names.get("client"):
        parts = _plan_label_folders(base, options, log)
        if parts:
            return parts
    return _plan_files(base, options, log)


def _skip_wrappers(folder: Path) -> Path:
    """Return the first folder that has more than one entry, or a file: archives often unpack into their own folder."""
    while True:
        entries = [path for path in list_visible(folder) if path.is_dir() or not DOCUMENTS.fullmatch(path.name)]
        if len(entries) != 1 or not entries[0].is_dir() or parse_split_name(entries[0])[0]:
            return folder
        folder = entries[0]


def choose_splits(available: Collection[str | None]) -> dict[str | None, str]:
    """Return the splits that are used, and what for. Without a test split, the development split is the test split."""
    if "train" not in available:
        return dict.fromkeys(available, "train")
    test = next((split for split in ("test", "dev") if split in available), None)
    return {"train": "train", **({test: "test"} if test else {})}


def _plan_label_folders(base: Path, options: ReadOptions, log: ReadLog) -> list[FilePart]:
    """Plan one folder per label with one text per file, perhaps within a folder per split. Empty: another layout."""
    split_folders = _find_split_folders(base) or {None: base}
    labels = {split: _find_label_folders(folder, options, log) for split, folder in split_folders.items()}
    roles = choose_splits(split_folders)
    if not all(labels[split] for split in roles):
        return []
    parts = []
    for split, role in roles.items():
        for path in list_visible(split_folders[split]):
            if path not in labels[split]:
                log.ignore(path, "unlabeled" if path.name in UNLABELED else "not in the folder of a label")
            for text in list_visible(path) if path in labels[split] else ():
                if _is_text_file(text):
                    parts.append(FilePart(text, WHOLE_TEXT, role, {"label": path.name}))
                else:
                    log.ignore(text, UNKNOWN_FORMAT)
    for path in list_visible(base) if None not in split_folders else ():
        if path not in [split_folders[split] for split in roles]:
            log.ignore(path, "not used" if path.is_dir() else "not in the folder of a label")
    return parts


def _find_split_folders(base: Path) -> dict[str | None, Path]:
    """Return folders such as `train` and `test`, or `20news-bydate-train` and `20news-bydate-test`."""
    split_folders: dict[str | None, Path] = {}
    titles = set()
    for path in list_visible(base):
        split, title = parse_split_name(path)
        if path.is_dir() and split:
            split_folders[split] = path
            titles.add(title)
    return split_folders if "train" in split_folders and len(titles) == 1 else {}


def _find_label_folders(folder: Path, options: ReadOptions, log: ReadLog) -> list[Path]:
    """Return the subfolders that hold texts, one per file; none if one of them holds folders or other data."""
    labels = []
    for path in list_visible(folder):
        files = list_visible(path) if path.is_dir() and path.name not in UNLABELED else []
        texts = [file for file in files if _is_text_file(file)]
        others = [file for file in files if file not in texts]
        if any(file.is_dir() or _has_data_suffix(file) for file in others) or _find_companion(texts, others):
            return []
        if texts:
            labels.append(path)
    if len(labels) < 2:
        return []
    first = DataFile(list_visible(labels[0])[0], options, ReadLog(log.root))
    return [] if guess_format(first) not in (TEXT, None) else labels


def _is_text_file(path: Path) -> bool:
    split, rest = parse_split_name(path)
    is_text = strip_compression_suffix(path).suffix.lower() in TEXT_SUFFIXES or path.name.isdigit()
    return path.is_file() and is_text and (split is None or bool(rest))


def _has_data_suffix(path: Path) -> bool:
    return strip_compression_suffix(path).suffix.lower() in LOCAL_SUFFIXES or is_archive(path)


def _find_companion(texts: Collection[Path], others: Collection[Path]) -> tuple[Path, Path] | None:
    """Return a text and another file of the same name, such as note.txt and note.ann: the annotations of the text."""
    known = {path.with_suffix(""): path for path in texts if path.suffix}
    return next(((known[path.with_suffix("")], path) for path in others if path.with_suffix("") in known), None)


def _plan_files(base: Path, options: ReadOptions, log: ReadLog) -> list[FilePart]:
    """Plan files that each hold many rows: training and test files, or one file or folder per client."""
    formats = _find_data_files(base, options, log)
    if not formats:
        raise DataError(
            f"data.path: there is no data file in '{log.root}'; expected one folder per label, training and test files, "
            f"or one file or folder per client. Motet reads {SUPPORTED_FORMATS}. {_describe_suffixes(list_files(base, log))}"
        )
    _check_families(formats, base)
    files = [FolderFile.from_path(path, base, file_format) for path, file_format in formats.items()]
    _check_duplicates(files)
    splits = {file.split for file in files}
    if "train" in splits:
        return _plan_splits(files, log)
    if len(splits) > 1:
        held_out = next(file for file in files if file.split is not None)
        raise DataError(
            f"data.path: '{held_out.name}' seems to be a {held_out.split} set, but no file is named as training data. "
            "Rename the training file to train…, set data.files to a pattern for the names of the data, or set data.path "
            "and data.test to one file each."
        )
    names = {word: next((f.name for f in files if word in f.path.name.lower()), None) for word in ("train", "test")}
    if all(names.values()):
        raise DataError(
            f"data.path: '{names['train']}' and '{names['test']}' seem to be training and test files, but would be the files "
            "of clients. Name them train… and test…, or set data.path and data.test to one file each."
        )
    if len(files) > 1 and all(file.file_format is TEXT for file in files):
        log.warn("Each line of the text files is one text, and each file or its folder is a client.")
        if inner := next((file.name for file in files if file.name.count("/") > 1), None):
            folder = inner.rpartition("/")[0]
            log.warn(
                f"The names of folders within folders, such as '{folder}', are not read. If they are labels, write a table."
            )
    return _plan_clients(files)


@dataclass(frozen=True)
class FolderFile:
    """A data file, and what its name and the names of its folders say."""

    path: Path
    name: str  # relative to the base folder
    file_format: FileFormat
    split: str | None
    title: tuple[str, ...]  # the rest of the names

    @staticmethod
    def from_path(path: Path, base: Path, file_format: FileFormat) -> FolderFile:
        relative = path.relative_to(base)
        split, rest = parse_split_name(relative)
        names = []
        for folder in relative.parts[:-1]:
            folder_split, folder_rest = parse_split_name(Path(folder))
            split = split or folder_split
            names.append(folder_rest)
        rest = SHARD.sub("", rest).strip("-_. ").removesuffix(".task")
        if file_format in (GOLD_CONLL, REVIEW):  # the reader knows the domain or the label
            names, rest = ([] if file_format is GOLD_CONLL else names), ""
        title = tuple(name for name in dict.fromkeys((*names, rest)) if name)
        return FolderFile(path=path, name=relative.as_posix(), file_format=file_format, split=split, title=title)


def _find_data_files(base: Path, options: ReadOptions, log: ReadLog) -> dict[Path, FileFormat]:
    """Return all data files below a folder with their formats; the others are recorded in the log."""
    formats: dict[Path, FileFormat] = {}
    others: list[Path] = []
    for path in list_files(base, log):
        if options.files is not None and not fnmatch(path.relative_to(base).as_posix(), options.files):
            log.ignore(path, "does not match data.files")
        elif options.files is None and DOCUMENTS.fullmatch(path.name):
            log.ignore(path, "documentation")
        elif _is_unlabeled(path):
            log.ignore(path, "unlabeled")
        else:
            file_format = find_format(DataFile(path, options, log.fork()))
            if file_format is None:
                log.ignore(path, UNKNOWN_FORMAT)
                others.append(path)
            else:
                formats[path] = file_format
    if options.files is None:
        _check_layout(base, formats, others)
        _check_shards(formats)
    else:
        _check_layout(base, formats, [])
    return formats


def _check_layout(base: Path, formats: Mapping[Path, FileFormat], others: Sequence[Path]) -> None:
    """Raise an error if the names of folders have values, or if texts have annotations in `others`, unknown files."""
    for path in formats:
        hive = next(
            (match for part in path.relative_to(base).parts[:-1] if (match := HIVE_FOLDER.fullmatch(part))), None
        )
        if hive is not None:
            raise DataError(
                f"data.path: the name of the folder '{hive[0]}' has a value of the column '{hive[1]}', and its files do not. "
                "Write the rows into files with this column."
            )
    companion = _find_companion([path for path, file_format in formats.items() if file_format is TEXT], others)
    if companion is not None:
        text, other = (path.relative_to(base).as_posix() for path in companion)
        raise DataError(
            f"data.path: Motet does not read '{other}', which may have the annotations of '{text}'. Convert both to a table "
            "or to CoNLL; to read only the texts, set data.files='*.txt'."
        )


def _check_shards(paths: Iterable[Path]) -> None:
    """Raise an error if some parts of a table are missing, such as train-00001-of-00002.parquet."""
    names = ((path.parent, match) for path in paths if (match := COUNTED_SHARD.match(path.name)))
    counts = Counter((folder / match["table"], match["count"]) for folder, match in names)
    for (table, size), count in counts.items():
        if count < int(size):
            raise DataError(
                f"data.path: {count} of the {int(size)} files {table.name}…-of-{size} are in '{table.parent}'. Add the "
                "others; to read only these, set data.files to a pattern for their names."
            )


def _describe_suffixes(paths: Iterable[Path]) -> str:
    """Say which files a folder has, in case that none can be read."""
    counts = Counter(path.suffix or "without a suffix" for path in paths)
    return (
        f"The files are {', '.join(f'{suffix} ({count:,})' for suffix, count in counts.most_common(5))}."
        if counts
        else ""
    )


def _is_unlabeled(path: Path) -> bool:
    """True for the unlabeled reviews of FDU-MTL and Blitzer, and for Blitzer's file of all reviews."""
    name = strip_compression_suffix(path).name
    if name == "all.review":
        return (path.parent / "positive.review").exists()
    return name == "unlabeled.review" or name.endswith(".task.unlabel")


def _check_families(formats: Mapping[Path, FileFormat], base: Path) -> None:
    """Raise an error if the folder mixes, for example, tables and texts."""
    families: dict[str, Path] = {}
    for path, file_format in formats.items():
        families.setdefault(file_format.family, path)
    if len(families) > 1:
        largest = strip_compression_suffix(max(formats, key=lambda path: path.stat().st_size))
        examples = ", ".join(f"{family} ({path.relative_to(base)})" for family, path in families.items())
        raise DataError(
            f"data.path: '{base}' has files of several kinds: {examples}. Set data.files to a pattern for the names of "
            f"the data, for example data.files='*{largest.suffix}'."
        )


def _check_duplicates(files: Sequence[FolderFile]) -> None:
    """Raise an error for files such as train.csv and train.csv.gz, or train.csv and train.jsonl."""
    seen: dict[tuple[Path, str], FolderFile] = {}
    for file in files:
        stem = strip_compression_suffix(file.path)
        known = stem.stem if stem.suffix.lower() in file.file_format.suffixes else stem.name
        other = seen.setdefault((file.path.parent, known), file)
        if other is not file:
            raise DataError(
                f"data.path: '{other.name}' and '{file.name}' seem to hold the same rows. Remove one of them, or set "
                "data.files to a pattern for the names of the data."
            )


def _plan_splits(files: Sequence[FolderFile], log: ReadLog) -> list[FilePart]:
    """Plan training and test files; if there are several of each, the rest of the name is the client and the domain."""
    roles = choose_splits({file.split for file in files})
    sizes = Counter(file.split for file in files)
    has_domains = len({file.title for file in files}) > 1 and max(sizes.values()) > 1
    if has_domains:
        _check_titles([file for file in files if file.split in roles and sizes[file.split] > 1])
    parts = []
    for role in ("train", "test"):
        for file in files:
            if file.split is None:
                raise DataError(
                    f"data.path: '{file.name}' is neither a training nor a test file, but there are such files. Set "
                    "data.files to a pattern for the names of the data, or data.path to one file."
                )
            if roles.get(file.split) == role:
                constants = _name_source(file, "/".join(file.title)) if has_domains else {}
                parts.append(FilePart(file.path, file.file_format, role, constants))
            elif role == "train" and file.split not in roles:
                log.ignore(file.path, "development set, not used")
    if roles.get("dev") == "test":
        log.warn("The development set is the test set, because there is no test file.")
    return parts


def _check_titles(files: Sequence[FolderFile]) -> None:
    """Raise an error if one of several files for the same split, such as train.csv and train (1).csv, has no title."""
    unnamed = next((file for file in files if not file.title), None)
    if unnamed is not None:
        others = ", ".join(f"'{file.name}'" for file in files if file is not unnamed and file.split == unnamed.split)
        raise DataError(
            f"data.path: '{unnamed.name}' and {others} are for the same split, and not all of their names say whose files "
            "they are. Set data.files to a pattern for the names of the data, or data.path and data.test to one file each."
        )


def _name_source(file: FolderFile, source: str) -> dict[str, str]:
    """Return the columns for a source that has training and test files. Published formats have domains, and no clients."""
    return {"domain": source} if file.file_format in (REVIEW, FDU_MTL) else {"client": source, "domain": source}


def _plan_clients(files: Sequence[FolderFile]) -> list[FilePart]:
    """Plan one file or folder per client. A single file is no client, and neither are the parts of one table."""
    names = {(file.path.parent, SHARD.sub("", _stem(file))) for file in files}
    are_parts = len(names) == 1 and all(SHARD.search(_stem(file)) for file in files)
    parts = []
    for file in files:
        constants: dict[str, str] = {}
        if file.file_format in (REVIEW, FDU_MTL):
            constants = {"domain": "/".join(file.title)} if file.title else {}
        elif len(files) > 1 and not are_parts and file.file_format is not GOLD_CONLL:
            folder, _, _ = file.name.partition("/")
            constants = {"client": folder if "/" in file.name else _stem(file)}
        parts.append(FilePart(file.path, file.file_format, "train", constants))
    return parts


def _stem(file: FolderFile) -> str:
    path = strip_compression_suffix(file.path)
    return path.stem if path.suffix.lower() in file.file_format.suffixes else path.name
