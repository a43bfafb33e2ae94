"""Broken files give a corpus or a sentence: never a traceback, never a silent loss."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.corpus_folders import FOLDERS
from tests.fuzz.reader_targets import (
    NAMES,
    SEEDS,
    fuzz_corpora,
    fuzz_own_files,
    make_corpus_seeds,
    make_own_file_seeds,
)

from motet.datasets.corpus_readers import CORPUS_READERS

PIECES = [b"", b"\n", b"\r", b'"', b",", b"\t", b"\0", b"\xff", b"\xef\xbb\xbf", b"{", b"[", b"]", b"null", b"1e999", b"-1",
          b"\\ud800", "\u2028".encode(), b"<", b" ", b"|", b"O", b"I-X", b"@", b"99999999999999999999"]  # fmt: skip


def damage(content: bytes, seed: int) -> bytes:
    """Change, insert, remove, cut or repeat a few bytes."""
    rng = random.Random(seed)
    data = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.choice([0, 1, 1, 2, 8]))
        match rng.randrange(5):
            case 0:
                data[start:end] = rng.choice(PIECES)
            case 1:
                data[start:end] = bytes(rng.randrange(256) for _ in range(end - start))
            case 2:
                del data[start:]
            case 3:
                data[start:start] = data[start:end] * 2
            case _:
                data[start:start] = rng.choice(PIECES)
    return bytes(data)


@pytest.mark.parametrize("name", NAMES)
@given(number=st.integers(0, 99), seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_damaged_own_files(name: str, number: int, seed: int) -> None:
    contents = [content for seed_name, content in SEEDS if seed_name == name]
    fuzz_own_files(bytes([NAMES.index(name)]) + damage(contents[number % len(contents)], seed))


@pytest.mark.parametrize("index", range(len(FOLDERS)), ids=[name for name, _ in FOLDERS])
@given(number=st.integers(0, 255), seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_damaged_files_of_published_corpora(index: int, number: int, seed: int) -> None:
    texts = list(FOLDERS[index][1].values())
    content = texts[number % len(texts)].encode()
    fuzz_corpora(bytes([index, number % len(texts)]) + damage(content, seed))


def test_seeds_of_the_fuzzer_are_valid(tmp_path: Path) -> None:
    for number, (name, files) in enumerate(FOLDERS):
        for file, text in files.items():
            path = tmp_path / str(number) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert len(CORPUS_READERS[name](tmp_path / str(number))) > 0
    assert len(make_own_file_seeds()) == len(SEEDS)
    assert len(make_corpus_seeds()) > len(FOLDERS)
