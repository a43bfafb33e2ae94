"""Readers on original files. A test is skipped if its files are not in the folder `.data`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from motet.datasets.conll import find_invalid_tag
from motet.datasets.corpus import Corpus
from motet.datasets.corpus_readers import CORPUS_READERS

DATA = Path(__file__).parents[2] / ".data"


def read(name: str, folder: str | None = None) -> Corpus:
    path = DATA / (folder or name)
    if not path.is_dir():
        pytest.skip(f"needs the original files of {name} in {path.relative_to(DATA.parent)}")
    return CORPUS_READERS[name](path)


def split_sizes(corpus: Corpus) -> tuple[int, int]:
    return corpus.num_train, len(corpus) - corpus.num_train


def split_values(corpus: Corpus, column: str) -> tuple[set[str], set[str]]:
    values = corpus.column(column)
    return set(values[: corpus.num_train]), set(values[corpus.num_train :])


def is_well_formed(corpus: Corpus) -> bool:
    """True if there are no empty texts, all answers are at their start positions and all tags are valid BIO."""
    columns = {name: list(column) for name, column in corpus.columns.items()}
    if corpus.task == "qa":
        spans = zip(columns["context"], columns["answers"], columns["starts"], strict=True)
        return all(c.startswith(a, s) for c, answers, starts in spans for a, s in zip(answers, starts, strict=True))
    if corpus.task == "tagging":
        pairs = zip(columns["words"], columns["tags"], strict=True)
        return all(words and len(words) == len(tags) and find_invalid_tag(tags) is None for words, tags in pairs)
    texts = [name for name in ("text", "second", "source", "target") if name in columns]
    return all(value.strip() for name in texts for value in columns[name])


def test_20_newsgroups() -> None:
    corpus = read("20news")
    assert split_sizes(corpus) == (11_314, 7_532)
    assert len(corpus.labels) == 20
    assert not any("\n" in text for text in corpus.column("text"))
    assert sum(text.startswith("From:") for text in corpus.column("text")) > 10_000  # headers are included
    assert is_well_formed(corpus)


def test_ag_news() -> None:
    corpus = read("agnews")
    assert split_sizes(corpus) in ((5_000, 7_600), (120_000, 7_600))  # train_5k.csv or train.csv
    assert corpus.labels == ("Business", "Sci/Tech", "Sports", "World")
    assert set(Counter(corpus.column("label")[corpus.num_train :]).values()) == {1_900}
    assert not any("\\" in text for text in corpus.column("text"))
    assert is_well_formed(corpus)


def test_sst2() -> None:
    corpus = read("sst2")
    assert split_sizes(corpus) == (6_920, 1_821)
    assert Counter(corpus.column("label")[: corpus.num_train]) == {"positive": 3_610, "negative": 3_310}
    assert is_well_formed(corpus)


def test_imdb() -> None:
    corpus = read("imdb")
    assert split_sizes(corpus) in ((5_000, 5_000), (25_000, 25_000))  # a fifth of the corpus, or all of it
    assert set(Counter(corpus.column("label")).values()) == {corpus.num_train}
    assert not any("<br />" in text for text in corpus.column("text"))
    assert is_well_formed(corpus)


def test_amazon() -> None:
    corpus = read("amazon")
    assert split_sizes(corpus) == (24_398, 24_375)
    train = list(zip(corpus.column("domain"), corpus.column("label"), strict=True))[: corpus.num_train]
    assert Counter(domain for domain, _ in train) == {
        "automotive": 4_076,
        "baby": 7_676,
        "health": 4_278,
        "sport": 8_368,
    }
    shares = [train.count(("health", label)) / 4_278 for label in ("neutral", "positive", "negative")]
    assert shares == pytest.approx([0.769, 0.130, 0.101], abs=5e-4)
    assert is_well_formed(corpus)


def test_wnut17() -> None:
    corpus = read("wnut17")
    assert split_sizes(corpus) == (3_394, 1_287)
    assert len({tag for tags in corpus.column("tags") for tag in tags}) == 13
    assert is_well_formed(corpus)


def test_crossner() -> None:
    corpus = read("crossner")
    assert split_sizes(corpus) == (700, 2_506)
    train = corpus.column("domain")[: corpus.num_train]
    assert Counter(train) == {"ai": 100, "literature": 100, "music": 100, "politics": 200, "science": 200}
    assert is_well_formed(corpus)


@pytest.mark.parametrize(
    ("name", "size", "unanswerable", "titles"), [("squad", 10_570, 0, 48), ("squad2", 11_873, 5_945, 35)]
)
def test_squad(name: str, size: int, unanswerable: int, titles: int) -> None:
    corpus = read(name, "squad")
    assert is_well_formed(corpus)
    if "train" in corpus.report.summary:
        assert len(corpus) - corpus.num_train == size
        return
    assert len(corpus) == len(set(corpus.column("id"))) == size
    assert sum(not answers for answers in corpus.column("answers")) == unanswerable
    assert sum(map(len, split_values(corpus, "title"))) == titles
    assert not set.intersection(*split_values(corpus, "context"))


def test_squadshifts() -> None:
    corpus = read("squadshifts")
    sizes = Counter(corpus.column("domain"))
    assert (sizes["wiki"], sizes["reddit"], sizes["amazon"]) == (7_938, 9_803, 9_885)
    train, test = split_values(corpus, "context")
    assert not train & test
    assert is_well_formed(corpus)


def test_subjqa() -> None:
    corpus = read("subjqa")
    assert split_sizes(corpus) == (4_858, 1_689)  # the files have one row per annotator
    assert set(corpus.column("domain")) == {"electronics", "grocery", "restaurants", "tripadvisor"}
    assert not any("ANSWERNOTFOUND" in context for context in corpus.column("context"))
    assert corpus.report.drop_counts == {"questions whose answer is not in the context": 164}
    assert is_well_formed(corpus)


def test_policyqa() -> None:
    corpus = read("policyqa")
    assert split_sizes(corpus) == (3_809, 4_152)
    train, test = split_values(corpus, "client")
    assert (len(train), len(test)) == (20, 20)
    assert not train & test
    assert is_well_formed(corpus)


def test_aeslc() -> None:
    corpus = read("aeslc")
    assert split_sizes(corpus) == (14_436, 1_906)
    assert Counter(corpus.column("client")[: corpus.num_train])["shackleton-s"] == 1_010
    assert not any("@subject" in text or "@ann" in text for text in corpus.column("target"))
    assert is_well_formed(corpus)


def test_bbc() -> None:
    corpus = read("bbc")
    assert len(corpus) == 2_225
    assert Counter(corpus.column("domain")) == {
        "business": 510,
        "entertainment": 386,
        "politics": 417,
        "sport": 511,
        "tech": 401,
    }
    train, test = split_values(corpus, "source")
    assert not train & test
    assert is_well_formed(corpus)


def test_squad_qg() -> None:
    corpus = read("squad-qg", "squad_qg")
    assert split_sizes(corpus) == (10_570, 11_877)
    assert is_well_formed(corpus)


def test_shakespeare() -> None:
    corpus = read("shakespeare")
    assert len(corpus) == 7_097
    assert len(set(corpus.column("client"))) == 293  # of 303: the speeches of ten roles are missing in the file
    assert sum(map(len, corpus.column("text"))) > 900_000
    assert is_well_formed(corpus)


@pytest.mark.parametrize(
    ("name", "folder", "train", "test"),
    [
        ("glue-cola", "CoLA", 8_551, 1_043),
        ("glue-sst2", "SST-2", 67_349, 872),
        ("glue-mrpc", "MRPC", 3_668, 408),
        ("glue-stsb", "STS-B", 5_749, 1_500),
        ("glue-qnli", "QNLI", 104_743, 5_463),
        ("glue-rte", "RTE", 2_490, 277),
        ("glue-wnli", "WNLI", 635, 71),
    ],
)
def test_glue(name: str, folder: str, train: int, test: int) -> None:
    corpus = read(name, f"glue/{folder}")
    if "train" not in corpus.report.summary:
        assert len(corpus) == test
    else:
        assert split_sizes(corpus) in (
            (train, test),
            (train - (name == "glue-mrpc"), test),
        )  # some copies of MRPC lack a line
    assert not corpus.report.dropped
    assert len(corpus.labels) == 2 if corpus.task == "classification" else 0 <= min(corpus.column("score")) <= 5
    assert is_well_formed(corpus)
