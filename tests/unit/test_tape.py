"""Recordings of steps, with stand-ins for what only a GPU has. benchmarks/recorded.py compares real ones with plain steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from motet.learning.tape import _EAGER, Tape


class Graph:
    """Knows the pool it was recorded into, and how often it was replayed."""

    numbers = itertools.count(1)

    def __init__(self) -> None:
        self.into, self.replays = 0, 0

    def pool(self) -> int:
        return self.into

    def replay(self) -> None:
        self.replays += 1


class Generator:
    """In the midst of a recording until it is given another state."""

    def __init__(self) -> None:
        self.state = "recording"

    def clone_state(self) -> str:
        return "its own"

    def graphsafe_set_state(self, state: str) -> None:
        self.state = state


class Card:
    """What Tape asks of torch.cuda: which pools recordings were given, and which stream is the current one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[int | None] = []
        self.current, self.generator = "first", Generator()
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: "recording")
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "graph", self.graph)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self.current)
        monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: setattr(self, "current", stream))
        monkeypatch.setattr(torch.cuda, "default_generators", (self.generator,))

    @contextmanager
    def graph(self, graph: Graph, pool: int | None, stream: str, capture_error_mode: str) -> Iterator[None]:
        self.given.append(pool)
        graph.into = next(Graph.numbers) if pool is None else pool
        self.current = stream
        yield
        self.current = "first"


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    return Card(monkeypatch)


def play(tape: Tape, key: str, step: Any = lambda: None) -> None:
    for _ in range(_EAGER + 1):
        tape.play((key,), "kind", step)


def test_recordings_share_a_pool(card: Card) -> None:
    tape = Tape(torch.device("cuda:0"))
    play(tape, "a")
    play(tape, "b")
    assert card.given[0] is None
    assert card.given[1] == tape.graphs[("a",)].pool()


def test_a_pool_whose_recordings_are_gone_is_not_asked_for_again(card: Card) -> None:
    tape = Tape(torch.device("cuda:0"))
    play(tape, "a")
    tape.drop(lambda key: True)
    play(tape, "b")
    assert card.given == [None, None]


def test_a_recording_that_fails_leaves_nothing_in_the_midst_of_it(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    taken: list[str] = []

    def waits_for_the_host() -> None:
        if card.current == "recording":
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        taken.append(card.current)

    tape = Tape(torch.device("cuda:0"))
    play(tape, "before")
    play(tape, "waits", waits_for_the_host)
    assert taken == ["first"] * (_EAGER + 1), "a step that cannot be recorded is taken all the same"
    assert card.generator.state == "its own"
    assert not tape.graphs, "recordings that drew from the generator's former state are made again"
    assert "not recorded" in caplog.text
    assert "not permitted" in caplog.text
    assert "more" not in caplog.text
    play(tape, "waits", waits_for_the_host)
    assert len(card.given) == 2, "what failed once is not tried again"


def test_a_recording_without_room_says_so_and_can_be_tried_again(card: Card) -> None:
    def too_large() -> None:
        if card.current == "recording":
            raise torch.OutOfMemoryError("no room")

    tape = Tape(torch.device("cuda:0"))
    with pytest.raises(torch.OutOfMemoryError):
        play(tape, "large", too_large)
    assert card.current == "first"
    assert card.generator.state == "its own"
    assert not tape.spoilt
