"""Laws of tag schemes: an entity is the same entity in each of them."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.datasets.conll import SCHEMES, detect_scheme, find_invalid_tag, from_bio, to_bio

ENTITY = st.builds(
    lambda kind, length: [f"B-{kind}", *[f"I-{kind}"] * (length - 1)],
    st.sampled_from(["PER", "LOC", "creative-work"]),
    st.integers(1, 4),
)
SENTENCE = st.lists(st.one_of(ENTITY, st.just(["O"])), max_size=12).map(
    lambda pieces: list(chain.from_iterable(pieces))
)


@given(SENTENCE)
def test_what_is_drawn_is_well_formed(tags: list[str]) -> None:
    assert find_invalid_tag(tags) is None


@pytest.mark.parametrize("scheme", SCHEMES)
@given(tags=SENTENCE)
def test_there_and_back_again_is_the_same(scheme: str, tags: list[str]) -> None:
    assert to_bio(from_bio(tags, scheme), scheme) == tags


@pytest.mark.parametrize("scheme", SCHEMES)
@given(sentences=st.lists(SENTENCE, min_size=1))
def test_a_scheme_is_recognised_and_undone(scheme: str, sentences: list[list[str]]) -> None:
    written = [from_bio(tags, scheme) for tags in sentences]
    read = detect_scheme(written)
    if any(tag != "O" for tags in sentences for tag in tags):
        assert read == scheme
    assert [to_bio(tags, read) for tags in written] == sentences


@given(SENTENCE, st.data())
def test_an_inside_without_its_beginning_is_found(tags: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(tags)))
    broken = [*tags[:at], "O", "I-PER", *tags[at:]]
    assert find_invalid_tag(broken) == (at + 1, "O or B-PER after 'O'")
