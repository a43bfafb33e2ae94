"""The readers of GLUE, on small files made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.corpus import Corpus
from motet.datasets.corpus_readers import CORPUS_READERS

WriteFile = Callable[..., Path]

HEADERS = {
    "SST-2": "sentence\tlabel",
    "MRPC": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "STS-B": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
    "QQP": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "MNLI": "index\tpromptID\tpairID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label",
    "QNLI": "index\tquestion\tsentence\tlabel",
    "RTE": "index\tsentence1\tsentence2\tlabel",
    "WNLI": "index\tsentence1\tsentence2\tlabel",
}
ROWS = {
    "SST-2": 'a "good film \t1',
    "MRPC": '1\t10\t11\tHe said "no .\tHe said no .',
    "STS-B": '0\tmain-news\tMSRvid\t2012\t1\tnone\tnone\tA "plane.\tAn air plane.\t3.800',
    "QQP": '7\t1\t2\tWhy "so?\tWhy?\t0',
    "MNLI": '0\t31\t31n\tgovernment\tOne "way.\tTwo.\tneutral\tneutral',
    "QNLI": '0\tWhat "is?\tIt is.\tnot_entailment',
    "RTE": '0\tIt "rained.\tIt was wet.\tentailment',
    "WNLI": '0\tIt had a "hole.\tThe carrot had a hole.\t0',
}
EXPECTED: dict[str, tuple[str, object, str | None]] = {
    "SST-2": ('a "good film', "positive", None),
    "MRPC": ('He said "no .', "equivalent", "He said no ."),
    "STS-B": ('A "plane.', 3.8, "An air plane."),
    "QQP": ('Why "so?', "not_duplicate", "Why?"),
    "MNLI": ('One "way.', "neutral", "Two."),
    "QNLI": ('What "is?', "not_entailment", "It is."),
    "RTE": ('It "rained.', "entailment", "It was wet."),
    "WNLI": ('It had a "hole.', "not_entailment", "The carrot had a hole."),
}


def read(task: str, folder: Path) -> Corpus:
    return CORPUS_READERS[f"glue-{task.replace('-', '').lower()}"](folder)


@pytest.mark.parametrize("task", HEADERS)
def test_quotes_have_no_meaning_and_broken_lines_are_counted(task: str, write_file: WriteFile, tmp_path: Path) -> None:
    content = f"{HEADERS[task]}\r\n{ROWS[task]}\r\nbroken\r\n\r\n{ROWS[task]}\r\n"
    write_file(f"glue/{task}/train.tsv", content)
    write_file(f"glue/{task}/{'dev_matched' if task == 'MNLI' else 'dev'}.tsv", content)
    write_file(f"glue/{task}/test.tsv", "index\tsentence\n0\tsecret")
    text, value, second = EXPECTED[task]
    for folder in (tmp_path, tmp_path / "glue" / task):
        corpus = read(task, folder)
        assert (corpus.num_train, len(corpus)) == (2, 4)
        assert corpus.column("text") == [text] * 4
        assert corpus.column("score" if task == "STS-B" else "label") == [value] * 4
        assert (corpus.column("second") == [second] * 4) if second else ("second" not in corpus.columns)
        assert corpus.report.drop_counts == {"rows with missing columns": 2}
        assert corpus.task == ("regression" if task == "STS-B" else "classification")


def test_cola_files_have_no_header(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("CoLA/train.tsv", 'gj04\t1\t\tThe "sailors rode.\ncj99\t0\t*\tAs you eat.\ncj99\t0\n')
    write_file("CoLA/dev.tsv", "cj99\t0\t*\tMore.\n")
    corpus = read("CoLA", tmp_path)
    assert corpus.column("text") == ['The "sailors rode.', "As you eat.", "More."]
    assert corpus.column("label") == ["acceptable", "unacceptable", "unacceptable"]
    assert corpus.column("domain") == ["gj04", "cj99", "cj99"]
    assert corpus.report.drop_counts["rows with missing columns"] == 1


def test_mnli_is_tested_on_matched_or_mismatched_genres(write_file: WriteFile, tmp_path: Path) -> None:
    row = ROWS["MNLI"]
    write_file("MNLI/train.tsv", f"{HEADERS['MNLI']}\n{row}\n{row.replace('neutral', '-')}\n")
    write_file("MNLI/dev_matched.tsv", f"{HEADERS['MNLI']}\n{row}\n")
    write_file("MNLI/dev_mismatched.tsv", f"{HEADERS['MNLI']}\n{row.replace('government', 'letters')}\n")
    assert CORPUS_READERS["glue-mnli"](tmp_path).column("domain") == ["government", "government"]
    mismatched = CORPUS_READERS["glue-mnli-mm"](tmp_path)
    assert mismatched.column("domain") == ["government", "letters"]
    assert mismatched.report.summary == "MNLI/train.tsv, MNLI/dev_mismatched.tsv; dropped: 1 rows without a gold label"


def test_dev_file_alone_is_split(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("QNLI/dev.tsv", f"{HEADERS['QNLI']}\n" + f"{ROWS['QNLI']}\n" * 10)
    corpus = read("QNLI", tmp_path)
    assert (corpus.num_train, len(corpus)) == (8, 10)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "index\tquestion\tlabel\n",
            "glue-qnli: dev.tsv has no column 'sentence'; its header names index, question, label",
        ),
        (
            f"{HEADERS['QNLI']}\n0\ta\tb\tmaybe\n",
            "dev.tsv, line 2: label 'maybe' is not one of entailment, not_entailment",
        ),
        (f"{HEADERS['QNLI']}\n0\t\tb\tentailment\n", "glue-qnli: no training rows found"),
    ],
)
def test_invalid_glue_file_raises_an_error(text: str, message: str, write_file: WriteFile, tmp_path: Path) -> None:
    write_file("QNLI/dev.tsv", text)
    with pytest.raises(DataError, match=message):
        read("QNLI", tmp_path)


def test_stsb_genre_with_two_spellings_is_one_domain(write_file: WriteFile, tmp_path: Path) -> None:
    for split, genre in (("train", "main-forum"), ("dev", "main-forums")):
        write_file(f"STS-B/{split}.tsv", f"{HEADERS['STS-B']}\n{ROWS['STS-B'].replace('main-news', genre)}\n")
    assert read("STS-B", tmp_path).column("domain") == ["main-forums"] * 2


def test_score_that_is_not_a_number_raises_an_error(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("STS-B/train.tsv", f"{HEADERS['STS-B']}\n{ROWS['STS-B'].replace('3.800', 'high')}\n")
    with pytest.raises(DataError, match=r"train.tsv, line 2: score 'high' is not a number from 0 to 5"):
        read("STS-B", tmp_path)
