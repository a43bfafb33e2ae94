from __future__ import annotations

import bz2
from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.ner_corpora import conll2003, crossner, ontonotes, ploner, wikiner, wnut17

WriteFile = Callable[..., Path]


def test_conll2003_reads_both_published_versions_as_bio(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("old/eng.train", "-DOCSTART- -X- O O\n\nU.N. NNP I-NP I-ORG\nofficial NN I-NP O\nEkeus NNP I-NP I-PER\n")
    write_file("old/eng.testa", "dev NN I-NP O\n")
    write_file("old/eng.testb", "Japan NNP I-NP I-LOC\nItaly NNP I-NP B-LOC\n")
    write_file("new/train.txt", "U.N. NNP B-NP B-ORG\n")
    write_file("new/test.txt", "Japan NNP B-NP B-LOC\n")
    corpus = conll2003(tmp_path / "old")
    assert corpus.column("words") == [["U.N.", "official", "Ekeus"], ["Japan", "Italy"]]
    assert corpus.column("tags") == [["B-ORG", "O", "B-PER"], ["B-LOC", "B-LOC"]]
    assert corpus.num_train == 1
    assert conll2003(tmp_path / "new").column("tags") == [["B-ORG"], ["B-LOC"]]


def test_wnut17_sentences_end_at_a_line_with_a_tab(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("wnut17train.conll", "Empire\tB-location\nState\tI-location\n\t\nRick\tB-creative-work\n")
    write_file("emerging.test.annotated", "&\tO\ngt\tO\n\n")
    corpus = wnut17(tmp_path)
    assert corpus.column("words") == [["Empire", "State"], ["Rick"], ["&", "gt"]]
    assert corpus.num_train == 2
    write_file("emerging.test.annotated", "&\tO\ngt\n")
    with pytest.raises(DataError, match=r"emerging.test.annotated, line 2: 'gt' has 1 of at least 2 columns"):
        wnut17(tmp_path)


def test_ontonotes_reads_the_first_and_the_last_column(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("onto.train.ner", "Hong\tNNP\t(NP*\tB-WORK_OF_ART\nKong\tNNP\t*)\tI-WORK_OF_ART\n\n")
    write_file("onto.development.ner", "dev\tNN\t*\tO\n")
    write_file("onto.conll-2012-test.ner", "other\tNN\t*\tO\n")
    write_file("onto.test.ner", "two\tCD\t*\tB-CARDINAL\n")
    corpus = ontonotes(tmp_path)
    assert corpus.column("words") == [["Hong", "Kong"], ["two"]]
    assert corpus.column("tags") == [["B-WORK_OF_ART", "I-WORK_OF_ART"], ["B-CARDINAL"]]


def test_wikiner_converts_iob1_and_keeps_duplicates_in_one_split(tmp_path: Path) -> None:
    lines = [
        "\nThe|DT|O Oxford|NNP|I-LOC Cambridge|NNP|B-LOC ||:|O\n",
        "\n",
        *(f"Only|RB|O {i}|CD|O\n" for i in range(9)),
    ]
    (tmp_path / "aij-wikiner-en-wp2.bz2").write_bytes(bz2.compress("".join(lines).encode()))
    (tmp_path / "aij-wikiner-en-wp3").write_text(lines[0], "utf-8")
    (tmp_path / "aij-wikiner-de-wp3").write_text("Nur|ADV|O\n", "utf-8")
    corpus = wikiner(tmp_path)
    assert len(corpus) == 11
    sentence = ["The", "Oxford", "Cambridge", "|"]
    assert corpus.column("tags")[corpus.column("words").index(sentence)] == ["O", "B-LOC", "B-LOC", "O"]
    assert corpus.column("words").count(sentence) == 2
    train, test = [
        {" ".join(words) for words in split}
        for split in (corpus.column("words")[: corpus.num_train], corpus.column("words")[corpus.num_train :])
    ]
    assert not train & test


def test_wikiner_reports_broken_tokens_and_skips_lines_without_tags(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("aij-wikiner-en-wp3", "heading\nThe|DT|O end|O\n")
    with pytest.raises(DataError, match=r"aij-wikiner-en-wp3, line 2: 'end\|O' is not word\|part of speech\|tag"):
        wikiner(tmp_path)
    write_file("aij-wikiner-en-wp3", "heading\nThe|DT|O\nend|NN|O\n")
    assert wikiner(tmp_path).report.summary == "aij-wikiner-en-wp3; dropped: 1 lines without tags"


def test_ploner_subcorpora_are_domains(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("PLONER/conll03/train.txt", "Ann NNP I-PER\nran VBD O\n")
    write_file("PLONER/conll03/test.txt", "Bob NNP I-PER\n")
    write_file("PLONER/wnut16/wnut16.train.conll", "Oslo\tS-LOC\n")
    write_file("PLONER/wnut16/wnut16.dev.conll", "Rome\tS-LOC\n")
    write_file("PLONER/bn.txt", "".join(f"w{i} B-ORG\n\n" for i in range(5)))
    corpus = ploner(tmp_path)
    assert corpus.column("domain") == ["bn"] * 4 + ["conll03", "wnut16", "bn", "conll03", "wnut16"]
    assert corpus.column("tags")[4:6] == [["B-PER", "O"], ["B-LOC"]]
    assert corpus.num_train == 6


def test_crossner_fields_are_domains_and_dev_files_are_not_used(write_file: WriteFile, tmp_path: Path) -> None:
    for domain in ("ai", "music"):
        for split in ("train", "dev", "test"):
            write_file(f"{domain}/{split}.txt", f"{split}\tB-{domain}\n\n")
    write_file("README.md", "# CrossNER")
    write_file("LICENSE", "MIT License")
    corpus = crossner(tmp_path)
    assert corpus.column("words") == [["train"], ["train"], ["test"], ["test"]]
    assert corpus.column("domain") == ["ai", "music"] * 2
    assert corpus.column("tags")[0] == ["B-ai"]
