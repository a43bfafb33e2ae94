"""Folders as other programs write them: no file is taken for a label or a client that it is not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.inspection.corpus_inspection import inspect_corpus
from motet.datasets.inspection.findings import find_problems
from motet.datasets.load_corpus import DataConfig, read_corpus

ROWS = "text,label\n" + "".join(f"the text of case {i},{'ab'[i % 2]}\n" for i in range(20))
UUID = "8d0c3f1e-1b1a-4b3c-9d1e-0123456789ab"


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.replace("case", Path(name).stem))
    return folder


def messages(corpus: Corpus) -> list[str]:
    return [finding.message for finding in find_problems(inspect_corpus(corpus))]


@pytest.mark.parametrize(
    "names",
    [
        [f"part-0000{i}-{UUID}-c000.csv" for i in range(3)] + ["_SUCCESS"],
        [f"00000000000{i}.csv" for i in range(3)],
        [f"out/table-0000{i}-of-00003.csv" for i in range(3)],
        [f"data/train-0000{i}-of-00003-{'ab' * 7}0{i}.csv" for i in range(3)] + ["dataset_infos.json"],
        ["train_part1.csv", "train_part2.csv", "train_part3.csv"],
        ["fold_1.csv", "fold_2.csv", "fold_3.csv"],
    ],
    ids=["spark", "bigquery", "shards", "hashes", "parts", "folds"],
)
def test_the_parts_of_one_table_are_no_clients(names: list[str], tmp_path: Path) -> None:
    corpus = read_corpus(DataConfig(path=str(write(tmp_path, dict.fromkeys(names, ROWS)))))
    assert "client" not in corpus.columns
    assert len(corpus) == 60
    assert not messages(corpus)


@pytest.mark.parametrize("names", [["north-part1.csv", "south-part1.csv"], ["n/part-0000.csv", "s/part-0000.csv"]])
def test_files_of_clients_stay_apart(names: list[str], tmp_path: Path) -> None:
    corpus = read_corpus(DataConfig(path=str(write(tmp_path, dict.fromkeys(names, ROWS)))))
    assert len(set(corpus.column("client"))) == 2
    assert corpus.report.columns["client"] == "the name of the file or its folder"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"label=a/0.csv": "text\ncase\n", "label=b/0.csv": "text\ncase\n"}, "'label=a' has a value of the column 'label'"),
        ({"1.txt": "case\n", "1.ann": "T1\tX 0 4\tcase\n", "2.txt": "case\n"}, "does not read '1.ann', which may have the annotations of"),
        ({"a/1.txt": "case", "a/1.ann": "T1", "b/2.txt": "case", "b/2.ann": ""}, "does not read 'a/1.ann'"),
        ({"a/1.docx": "x", "b/2.docx": "x", "c": "x"}, "The files are .docx (2), without a suffix (1)."),
        ({"train-00000-of-00003.csv": ROWS}, "1 of the 3 files train-…-of-00003 are in "),
        ({"train.csv": ROWS, "test.csv": "text\ncase\n"}, "To leave a file out, set data.path to one file, or data.files to"),
    ],
)  # fmt: skip
def test_what_the_names_or_other_files_say_is_not_lost(files: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read_corpus(DataConfig(path=str(write(tmp_path, files))))
    assert message in str(error.value)


def test_other_files_in_the_folders_of_labels_are_named(tmp_path: Path) -> None:
    files = {f"{label}/{i}.txt": f"a text of {label}" for label in "ab" for i in range(9)}
    corpus = read_corpus(DataConfig(path=str(write(tmp_path, {**files, "a/scan.png": "x", "scans/1.png": "x"}))))
    assert corpus.task == "classification"
    assert set(corpus.column("label")) == {"a", "b"}
    assert "files that are not read: a/scan.png (unknown format)." in messages(corpus)
    assert "scans (not in the folder of a label)" in corpus.report.ignored_files


def test_lines_of_several_text_files_are_a_warning(tmp_path: Path) -> None:
    files = {f"{label}/2024/{i}.txt": f"note {i} of case\nand more\n" for label in "ab" for i in range(9)}
    corpus = read_corpus(DataConfig(path=str(write(tmp_path, files))))
    assert corpus.task == "lm"
    assert "Each line of the text files is one text, and each file or its folder is a client." in messages(corpus)
    inner = "The names of folders within folders, such as 'a/2024', are not read. If they are labels, write a table."
    assert inner in messages(corpus)


def test_files_in_linked_folders_are_read_once(tmp_path: Path) -> None:
    write(tmp_path, {"data/south/a.csv": ROWS, "disk/north/b.csv": ROWS})
    (tmp_path / "data" / "north").symlink_to(tmp_path / "disk" / "north")
    (tmp_path / "data" / "latest").symlink_to(tmp_path / "data" / "south")
    corpus = read_corpus(DataConfig(path=str(tmp_path / "data")))
    assert set(corpus.column("client")) == {"north", "south"}
    assert len(corpus) == 40
    assert "latest (a link to a folder that is read)" in corpus.report.ignored_files


@pytest.mark.parametrize(("target", "message"), [("gone", "which does not exist"), ("..", "which holds other folders")])
@pytest.mark.parametrize("others", [["a.csv"], ["a/1.txt", "b/1.txt"]], ids=["files", "labels"])
def test_links_that_cannot_be_followed_are_an_error(
    target: str, message: str, others: list[str], tmp_path: Path
) -> None:
    folder = write(tmp_path / "data", dict.fromkeys(others, ROWS))
    (folder / "c").symlink_to(target)
    with pytest.raises(DataError, match=f"'{folder / 'c'}' is a link to .*, {message}"):
        read_corpus(DataConfig(path=str(folder)))
