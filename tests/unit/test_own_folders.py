"""Own folders and archives: which files are read, and what each of them is."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from motet.core.errors import ConfigError, DataError
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import DataConfig, read_corpus


def write_files(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def read(path: Path, task: str | None = None, **options: Any) -> Corpus:
    return read_corpus(DataConfig(path=str(path), **options), task)


def splits(corpus: Corpus, name: str) -> tuple[list[Any], list[Any]]:
    values = list(corpus.column(name))
    return values[: corpus.num_train], values[corpus.num_train :]


IMDB = {
    "README": "about",
    "imdb.vocab": "the\nand\n",
    "train/pos/0_9.txt": "good",
    "train/pos/1_8.txt": "fine",
    "train/neg/0_1.txt": "bad",
    "train/unsup/0_0.txt": "unlabeled",
    "train/urls_pos.txt": "http://example.org\n",
    "train/labeledBow.feat": "9 0:1\n",
    "test/pos/0_10.txt": "great",
    "test/neg/0_2.txt": "poor",
    "test/urls_neg.txt": "http://example.org\n",
    "train/pos/.DS_Store": b"\0\0\0\1Bud1",
}


def test_acl_imdb_as_downloaded(tmp_path: Path) -> None:
    corpus = read(write_files(tmp_path, {f"aclImdb/{name}": text for name, text in IMDB.items()}))
    assert splits(corpus, "text") == (["bad", "good", "fine"], ["poor", "great"])
    assert splits(corpus, "label") == (["neg", "pos", "pos"], ["neg", "pos"])
    assert "aclImdb/train/unsup (unlabeled)" in corpus.report.ignored_files
    assert "aclImdb/train/urls_pos.txt (not in the folder of a label)" in corpus.report.ignored_files


@pytest.mark.parametrize(("train", "test"), [("train", "test"), ("20news-bydate-train", "20news-bydate-test")])
def test_folders_of_labels_within_splits(train: str, test: str, tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"{train}/{label}/{i}": f"{label} {i}" for label in "ab" for i in range(3)}
    corpus = read(write_files(tmp_path, {**files, f"{test}/a/9": "a 9", f"{test}/b/9": "b 9"}))
    assert (corpus.task, corpus.num_train) == ("classification", 6)
    assert splits(corpus, "text")[1] == ["a 9", "b 9"]


def test_training_and_test_files_of_a_folder_stay_apart(tmp_path: Path) -> None:
    row = "text,label\n{0} one,a\n{0} two,b\n"
    files: dict[str, str | bytes] = {f"{split}.csv": row.format(split) for split in ("train", "dev", "test")}
    corpus = read(write_files(tmp_path, {**files, "README.md": "about", ".DS_Store": b"\0"}))
    assert splits(corpus, "text") == (["train one", "train two"], ["test one", "test two"])
    assert "client" not in corpus.columns
    assert corpus.report.ignored_files == ("README.md (documentation)", "dev.csv (development set, not used)")
    (tmp_path / "test.csv").unlink()
    corpus = read(tmp_path)
    assert splits(corpus, "text")[1] == ["dev one", "dev two"]
    assert corpus.report.warnings == ("The development set is the test set, because there is no test file.",)
    with pytest.raises(ConfigError, match="has test files of its own"):
        read(tmp_path, test=str(tmp_path / "dev.csv"))


def test_training_and_test_files_of_several_sources_have_clients_and_domains(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"{domain}/{split}.txt": f"{domain} B-X\n{split} O\n"
        for domain in ("law", "art")
        for split in ("train", "test")
    }
    corpus = read(write_files(tmp_path, files))
    assert splits(corpus, "domain") == splits(corpus, "client") == (["art", "law"], ["art", "law"])
    assert corpus.column("words")[0] == ["art", "train"]
    corpus = read(write_files(tmp_path / "names", {name.replace("/", "_"): text for name, text in files.items()}))
    assert splits(corpus, "domain") == splits(corpus, "client") == (["art", "law"], ["art", "law"])


def test_split_files_with_different_names_have_no_domain(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        name: f"{name} B-X\nis O\n" for name in ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated")
    }
    corpus = read(write_files(tmp_path, files))
    assert splits(corpus, "words") == ([["wnut17train.conll", "is"]], [["emerging.test.annotated", "is"]])
    assert set(corpus.columns) == {"words", "tags"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"dev.csv": "text\na\n", "test.csv": "text\nb\n"}, "'dev.csv' seems to be a dev set, but no file is named"),
        ({"data.csv": "text\na\n", "test.csv": "text\nb\n"}, "'test.csv' seems to be a test set"),
        ({"train.csv": "text\na\n", "more.csv": "text\nb\n"}, "'more.csv' is neither a training nor a test file"),
        ({"a.csv": "text\na\n", "b.txt": "x\n"}, r"has files of several kinds: tables (a.csv), texts (b.txt)"),
        ({"train.csv": "text\na\n", "train.jsonl": "{}"}, "'train.csv' and 'train.jsonl' seem to hold the same rows"),
        ({"a.csv": "text,label\na,x\n", "b.csv": "text\nb\n"}, "b.csv, line 2: column 'label' has no value, but a.csv"),
        ({"a.csv": "text\na\n", "b.csv": "text,label\nb,x\n"}, "a.csv, line 2: column 'label' has no value, but b.csv"),
        (
            {"train.csv": "text,label\na,x\n", "test.csv": "text,label\n"},
            "there are test files without rows. Remove them",
        ),
        ({"README.md": "text", "x.bin": b"\0\1"}, "there is no data file in"),
    ],
)
def test_doubtful_folders_are_an_error(files: dict[str, str | bytes], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read(write_files(tmp_path, files))
    assert message in str(error.value)


def test_files_without_rows_are_a_warning(tmp_path: Path) -> None:
    rows = "text,label\na,x\nb,y\n"
    corpus = read(write_files(tmp_path, {"north.csv": rows, "south.csv": "text,label\n", "west.csv": rows}))
    assert corpus.report.warnings == ("Files without rows: south.csv.",)


def test_pattern_selects_files(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.csv": "text,label\na,x\n", "b.csv": "text,label\nb,y\n", "labels.txt": "x\ny\n"})
    corpus = read(tmp_path, files="*.csv")
    assert set(corpus.column("client")) == {"a", "b"}
    assert corpus.report.ignored_files == ("labels.txt (does not match data.files)",)


def test_reviews_of_blitzer_and_fdu_mtl(tmp_path: Path) -> None:
    review = "<review>\n<rating>\n{1}\n</rating>\n<review_text>\n{0}\n</review_text>\n</review>\n"
    files: dict[str, str | bytes] = {}
    for domain in ("books", "dvd"):
        files[f"sorted_data_acl/{domain}/positive.review"] = review.format(f"good {domain}", 5.0) * 2
        files[f"sorted_data_acl/{domain}/negative.review"] = review.format(f"bad {domain}", 1.0)
        files[f"sorted_data_acl/{domain}/unlabeled.review"] = review.format("unlabeled", 4.0)
        files[f"sorted_data_acl/{domain}/all.review"] = review.format("twice", 4.0)
    corpus = read(write_files(tmp_path / "blitzer", files))
    rows = Counter(zip(*(corpus.column(name) for name in ("text", "label", "domain")), strict=True))
    assert rows[("good books", "positive", "books")] == 2
    assert rows[("bad dvd", "negative", "dvd")] == 1
    assert len(corpus) == 6
    files = {
        f"mtl-dataset/{domain}.task.{split}": f"1\t{domain} is good\n0\t{domain} is bad\n"
        for domain in ("books", "MR")
        for split in ("train", "test", "unlabel")
    }
    corpus = read(write_files(tmp_path / "fdu", files))
    assert splits(corpus, "domain") == (["MR", "MR", "books", "books"],) * 2
    assert splits(corpus, "label")[0] == ["positive", "negative"] * 2


def test_paraphrases_of_microsoft(tmp_path: Path) -> None:
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    rows = {split: f'1\t1\t2\tHe said "{split}.\tHe said it.\r\n' for split in ("train", "test")}
    corpus = read(write_files(tmp_path, {f"msr_paraphrase_{split}.txt": header + row for split, row in rows.items()}))
    assert splits(corpus, "text") == (['He said "train.'], ['He said "test.'])
    assert corpus.labels == ("equivalent",)


def test_onto_notes_gold_conll(tmp_path: Path) -> None:
    fields = "bc/cctv/00/cctv_0000 0 {0} {1} NN (TOP* - - - - {2} -"
    tokens = [("Anna", "(PERSON)"), ("saw", "*"), ("New", "(GPE*"), ("York", "*)"), (".", "*")]
    lines = [fields.format(i, word, entity) for i, (word, entity) in enumerate(tokens)]
    content = "#begin document (bc/cctv/00/cctv_0000); part 000\n" + "\n".join(lines) + "\n\n#end document\n"
    paths = [f"{split}/data/english/annotations/bc/cctv/00/cctv_0000.v4_gold_conll" for split in ("train", "test")]
    corpus = read(write_files(tmp_path, dict.fromkeys(paths, content)))
    assert corpus.column("words")[0] == [word for word, _ in tokens]
    assert corpus.column("tags")[0] == ["B-PERSON", "O", "B-GPE", "I-GPE", "O"]
    assert (set(corpus.column("domain")), corpus.num_train, len(corpus)) == ({"bc"}, 1, 2)


def test_archives_are_unpacked(tmp_path: Path) -> None:
    files = {"data/train.csv": "text,label\na,x\n", "data/test.csv": "text,label\nb,x\n", "__MACOSX/._train.csv": "\0"}
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    with tarfile.open(tmp_path / "data.tar.gz", "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    for name in ("data.zip", "data.tar.gz"):
        corpus = read(tmp_path / name)
        assert splits(corpus, "text") == (["a"], ["b"])
        assert corpus.name == name
    (tmp_path / "data.zip").write_bytes((tmp_path / "data.zip").read_bytes()[:60])
    with zipfile.ZipFile(tmp_path / "nameless.zip", "w") as archive:
        archive.writestr("x", "text\na\n")
        archive.filelist[0].filename = ""  # zipfile raises an IndexError when it reads this
    for name in ("data.zip", "nameless.zip"):
        with pytest.raises(DataError, match=rf"{name}: the archive cannot be unpacked"):
            read(tmp_path / name)


def test_archive_never_writes_outside_its_folder(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("../escaped.csv", "text\na\n")
        archive.writestr("ok.csv", "text\na\n")
    with tarfile.open(tmp_path / "bad.tar", "w") as tar:
        member = tarfile.TarInfo("link.csv")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
        member = tarfile.TarInfo("../escaped.csv")
        tar.addfile(member)
    for name in ("bad.zip", "bad.tar"):
        try:
            corpus = read(tmp_path / name)
        except DataError:
            continue
        assert set(corpus.column("text")) == {"a"}
    assert not list(tmp_path.parent.rglob("escaped.csv"))


@pytest.mark.parametrize("has_splits", [True, False])
def test_datasets_saved_to_disk(has_splits: bool, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    dataset = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [0, 1, 1]}, features=features)
    saved = datasets.DatasetDict({"train": dataset, "test": dataset.select([0])}) if has_splits else dataset
    if has_splits:
        saved["test"] = saved["test"].flatten_indices()
    saved.save_to_disk(str(tmp_path / "saved"))
    corpus = read(tmp_path / "saved")
    assert Counter(zip(corpus.column("text"), corpus.column("label"), strict=True)) == Counter(
        [("a", "no"), ("b", "yes"), ("c", "yes")] + [("a", "no")] * has_splits
    )
    assert corpus.num_train == (3 if has_splits else 2)


def test_hidden_labels_of_a_test_split(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})

    def make(*labels: int) -> Any:
        return datasets.Dataset.from_dict({"text": list("abc")[: len(labels)], "label": labels}, features=features)

    splits = {"train": make(0, 1, 1), "validation": make(1, 0), "test": make(-1)}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "saved"))
    corpus = read(tmp_path / "saved")
    assert (corpus.num_train, len(corpus)) == (3, 5)
    assert corpus.report.ignored_files == ("test (hidden labels)",)
    splits["test"].to_parquet(str(tmp_path / "t.parquet"))
    with pytest.raises(DataError, match=r"t\.parquet, row 1: column 'label' holds -1.*: the labels are hidden"):
        read(tmp_path / "t.parquet")


def test_excel_workbooks(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["text", "label", "note"], ["first", 1, None], [2024, 1.0, "x"], [None, None, None]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    corpus = read(tmp_path / "t.xlsx", test=str(tmp_path / "t.xlsx"))
    assert splits(corpus, "text")[0] == ["first", "2024"]
    assert corpus.labels == ("1",)
    book.create_sheet("second").append(["text", "label"])
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(DataError, match=r"there are several sheets \(Sheet, second\)\. Set data\.sheet"):
        read(tmp_path / "t.xlsx")
    assert len(read(tmp_path / "t.xlsx", sheet="Sheet")) == 2
    (tmp_path / "broken.xlsx").write_bytes(b"PK\3\4no")
    with pytest.raises(DataError, match=r"broken\.xlsx: the workbook cannot be read"):
        read(tmp_path / "broken.xlsx")
