"""CoNLL files: columns, tagging schemes, and errors with their lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core.errors import DataError
from motet.datasets.conll import detect_scheme, find_invalid_tag, read_conll, read_sentences, to_bio
from motet.datasets.read_log import ReadLog

WriteFile = Callable[..., Path]
LOG = ReadLog(Path())


def test_columns_are_separated_by_spaces_or_tabs(write_file: WriteFile) -> None:
    with_spaces = write_file(
        "a.txt", "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\n\nGerman JJ I-NP B-MISC\n"
    )
    assert read_conll(with_spaces, LOG) == {
        "words": [["EU", "rejects"], ["German"]],
        "tags": [["B-ORG", "O"], ["B-MISC"]],
    }
    with_tabs = write_file("b.conll", "New York\tB-location\r\nis \tO\r\n\t\r\n\ufeffbig\tO\r\n")
    assert read_conll(with_tabs, LOG) == {
        "words": [["New York", "is"], ["\ufeffbig"]],
        "tags": [["B-location", "O"], ["O"]],
    }


def test_word_and_tag_columns_can_be_chosen(write_file: WriteFile) -> None:
    path = write_file("a.txt", "1 EU I-ORG NNP\n2 said O VBD\n")
    assert read_conll(path, LOG, word=1, tag=2) == {"words": [["EU", "said"]], "tags": [["B-ORG", "O"]]}


def test_no_break_space_is_a_word(write_file: WriteFile) -> None:
    assert read_conll(write_file("a.txt", "\xa0\tO\nb\tO\n"), LOG)["words"] == [["\xa0", "b"]]


@pytest.mark.parametrize("line", ["alone", "\tO", "word\t", "   x"])
def test_line_with_too_few_columns_raises_an_error(line: str, write_file: WriteFile) -> None:
    with pytest.raises(
        DataError, match=r"a.txt, line 3: '.*' has 1 of at least 2 columns; expected a word and its tag"
    ):
        read_sentences(write_file("a.txt", f"EU\tB-ORG\nsaid\tO\n{line}\n"), LOG)


def test_minimum_number_of_columns_depends_on_the_column_indices(write_file: WriteFile) -> None:
    with pytest.raises(DataError, match="has 2 of at least 4 columns"):
        read_sentences(write_file("a.txt", "EU B-ORG\n"), LOG, word=0, tag=3)


@pytest.mark.parametrize(
    ("tags", "scheme", "bio"),
    [
        (["B-X", "I-X", "O", "B-Y"], "BIO", ["B-X", "I-X", "O", "B-Y"]),
        (["I-X", "I-X", "B-X", "O", "I-Y"], "IOB1", ["B-X", "I-X", "B-X", "O", "B-Y"]),
        (["I-X", "I-Y", "I-Y"], "IOB1", ["B-X", "B-Y", "I-Y"]),
        (["B-X", "I-X", "E-X", "S-X", "O"], "BIOES", ["B-X", "I-X", "I-X", "B-X", "O"]),
        (["B-X", "L-X", "U-Y"], "BILOU", ["B-X", "I-X", "B-Y"]),
        (["O", "O"], "BIO", ["O", "O"]),
        (["S-creative-work"], "BIOES", ["B-creative-work"]),
    ],
)
def test_scheme_is_detected_and_converted_to_bio(tags: list[str], scheme: str, bio: list[str]) -> None:
    assert detect_scheme([tags]) == scheme
    assert to_bio(tags, scheme) == bio
    assert find_invalid_tag(bio) is None


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (
            ["B-X", "O", "I-X"],
            r"line 3: tag 'I-X' of 'w2' is invalid in BIO, the scheme of the file; expected O or B-X after 'O'. Set data.repair",
        ),
        (["B-X", "I-Y"], r"line 2: tag 'I-Y' .* expected O or B-Y after 'B-X'"),
        (["PER", "O"], r"line 1: tag 'PER' .* expected O, or one of B-, I-, .* such as B-PER. Fix the tag.$"),
        (["S-X", "O", "E-X"], r"line 3: tag 'E-X' .* BIOES, the scheme of the file; expected O or B-X after 'O'"),
        (["B-", "O"], r"line 1: tag 'B-'"),
        (["S-X", "U-X"], r"line 2: tag 'U-X'"),
    ],
)
def test_invalid_tag_raises_an_error_with_its_line(tags: list[str], message: str, write_file: WriteFile) -> None:
    path = write_file("a.txt", "".join(f"w{i} {tag}\n" for i, tag in enumerate(tags)))
    with pytest.raises(DataError, match="a.txt, " + message):
        read_conll(path, LOG)


def test_inside_tag_at_the_start_of_a_sentence_raises_an_error(write_file: WriteFile) -> None:
    with pytest.raises(DataError, match=r"line 4: tag 'I-X' .* expected O or B-X at the start of a sentence"):
        read_conll(write_file("a.txt", "a B-X\nb O\n\nc I-X\n"), LOG)
