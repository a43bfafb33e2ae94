"""Conversions between tag schemes keep the entities."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.datasets.conll import END_PREFIXES, SCHEMES, detect_scheme, find_invalid_tag, split_tag, to_bio

ENTITY = st.builds(
    lambda entity_type, length: [f"B-{entity_type}", *[f"I-{entity_type}"] * (length - 1)],
    st.sampled_from(["PER", "LOC", "creative-work"]),
    st.integers(1, 4),
)
BIO_TAGS = st.lists(st.one_of(ENTITY, st.just(["O"])), max_size=12).map(
    lambda pieces: list(chain.from_iterable(pieces))
)


def from_bio(tags: Sequence[str], scheme: str) -> list[str]:
    """Convert BIO tags to another scheme."""
    converted = []
    for i, tag in enumerate(tags):
        prefix, entity_type = split_tag(tag)
        if prefix != "O" and scheme in END_PREFIXES:
            last, only = END_PREFIXES[scheme]
            continues = i + 1 < len(tags) and tags[i + 1] == f"I-{entity_type}"
            prefix = prefix if continues else {"B": only, "I": last}[prefix]
        elif prefix == "B" and scheme == "IOB1" and (i == 0 or split_tag(tags[i - 1])[1] != entity_type):
            prefix = "I"
        converted.append(f"{prefix}-{entity_type}" if entity_type else prefix)
    return converted


@given(BIO_TAGS)
def test_generated_tags_are_valid(tags: list[str]) -> None:
    assert find_invalid_tag(tags) is None


@pytest.mark.parametrize("scheme", SCHEMES)
@given(tags=BIO_TAGS)
def test_tags_survive_a_round_trip_through_every_scheme(scheme: str, tags: list[str]) -> None:
    assert to_bio(from_bio(tags, scheme), scheme) == tags


@pytest.mark.parametrize("scheme", SCHEMES)
@given(sentences=st.lists(BIO_TAGS, min_size=1))
def test_scheme_is_detected(scheme: str, sentences: list[list[str]]) -> None:
    converted = [from_bio(tags, scheme) for tags in sentences]
    detected = detect_scheme(converted)
    if any(tag != "O" for tags in sentences for tag in tags):
        assert detected == scheme
    assert [to_bio(tags, detected) for tags in converted] == sentences


@given(BIO_TAGS, st.data())
def test_inside_tag_without_a_beginning_is_found(tags: list[str], data: st.DataObject) -> None:
    i = data.draw(st.integers(0, len(tags)))
    broken = [*tags[:i], "O", "I-PER", *tags[i:]]
    assert find_invalid_tag(broken) == (i + 1, "O or B-PER after 'O'")
