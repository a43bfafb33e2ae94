"""The readers of corpora with named entities, on small files made by hand."""

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


def test_ploner_trains_on_train_and_dev_and_ignores_the_file_that_holds_all_splits(
    write_file: WriteFile, tmp_path: Path
) -> None:
    splits = {"train": "Ann I-PER\n\n" * 3, "dev": "Bob I-PER\n\n", "test": "Cy I-PER\n\n" * 2}
    for corpus in ("conll03", "wnut16"):
        for split, text in {**splits, "all": "".join(splits.values())}.items():
            write_file(f"PLONER/{corpus}_{split}.txt", text)
            write_file(f"folders/{corpus}/{corpus}_{split}.txt", text)
    for folder in ("PLONER", "folders"):
        corpus = ploner(tmp_path / folder)
        assert set(corpus.column("domain")) == {"conll03", "wnut16"}
        assert (corpus.num_train, len(corpus)) == (8, 12)
        assert {word for words in corpus.column("words")[corpus.num_train :] for word in words} == {"Cy"}
        assert [name.rpartition("/")[2] for name in corpus.report.ignored_files] == [
            "conll03_all.txt (all splits in one file)",
            "wnut16_all.txt (all splits in one file)",
        ]


def test_ploner_subcorpora_are_domains(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("PLONER/conll03/train.txt", "Ann NNP I-PER\nran VBD O\n")
    write_file("PLONER/conll03/test.txt", "Bob NNP I-PER\n")
    write_file("PLONER/wnut16/wnut16.train.conll", "Oslo\tS-LOC\n")
    write_file("PLONER/wnut16/wnut16.dev.conll", "Rome\tS-LOC\n")
    write_file("PLONER/bn_all.txt", "".join(f"w{i} B-ORG\n\n" for i in range(5)))
    corpus = ploner(tmp_path)
    assert corpus.column("domain") == ["bn"] * 4 + ["conll03", "wnut16", "bn", "conll03", "wnut16"]
    assert corpus.column("tags")[4:6] == [["B-PER", "O"], ["B-LOC"]]
    assert corpus.num_train == 6


def test_crossner_fields_are_domains_and_dev_files_are_not_used(write_file: WriteFile, tmp_path: Path) -> None:
    for domain, entity_type in (("ai", "field"), ("music", "band")):
        for split in ("train", "dev", "test"):
            write_file(f"{domain}/{split}.txt", f"{split}\tB-{entity_type}\n\n")
    write_file("README.md", "# CrossNER")
    write_file("LICENSE", "MIT License")
    corpus = crossner(tmp_path)
    assert corpus.column("words") == [["train"], ["train"], ["test"], ["test"]]
    assert corpus.column("domain") == ["ai", "music"] * 2
    assert corpus.column("tags")[0] == ["B-field"]
    assert corpus.report.ignored_files == ("ai/dev.txt (not used)", "music/dev.txt (not used)")


def write_conll2003(write_file: WriteFile) -> None:
    """CoNLL-2003 as people keep it: one folder for each layer of annotation."""
    for split in ("train", "test"):
        write_file(f"data/chunking/{split}.txt", "EU NNP B-NP\nrejects VBZ B-VP\n")
        write_file(f"data/ner/{split}.txt", "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n")


def test_conll2003_takes_the_folder_with_its_entity_types(write_file: WriteFile, tmp_path: Path) -> None:
    write_conll2003(write_file)
    corpus = conll2003(tmp_path)
    assert corpus.column("tags") == [["B-ORG", "O"]] * 2
    assert [file.name for file in corpus.report.files] == ["data/ner/train.txt", "data/ner/test.txt"]
    assert corpus.report.ignored_files == ("data/chunking (entity types NP, VP)",)


def test_file_with_other_entity_types_is_not_read_under_the_name_of_a_corpus(
    write_file: WriteFile, tmp_path: Path
) -> None:
    write_file("train.txt", "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\nBrexit NN B-NP B-MISC\n")
    write_file("test.txt", "Japan NNP B-NP B-LOC\n")
    with pytest.raises(
        DataError,
        match=r"ontonotes: train.txt has the entity type MISC; the types of ontonotes are CARDINAL, .* data.name=null",
    ):
        ontonotes(tmp_path)
    write_file("conll/train.txt", "EU\tB-PERSON\n")
    with pytest.raises(
        DataError, match=r"ploner: .* has the entity type PERSON; the types of ploner are LOC, ORG, PER"
    ):
        ploner(tmp_path / "conll")


def test_train_and_test_file_come_from_one_folder(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("a/train.txt", "EU NNP B-NP B-ORG\n")
    write_file("b/test.txt", "Japan NNP B-NP B-LOC\n")
    with pytest.raises(DataError, match=r"conll2003: there is no file 'eng.testb' \(nor test.txt\) beside a/train.txt"):
        conll2003(tmp_path)
    write_file("a/test.txt", "Japan NNP B-NP B-LOC\n")
    write_file("b/train.txt", "EU NNP B-NP B-ORG\n")
    with pytest.raises(DataError, match=r"conll2003: the files are in several folders \(a, b\)\. Set data.path to one"):
        conll2003(tmp_path)
