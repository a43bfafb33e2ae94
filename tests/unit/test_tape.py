"""Recordings of steps, with stand-ins for what only a GPU has. benchmarks/recorded.py compares real ones with plain steps."""

from __future__ import annotations

import gc
import itertools
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch

from motet.learning.packed.cuda_graphs import _EAGER_RUNS, CudaGraphs


class Graph:
    """Knows the pool it was recorded into, and how often it was replayed."""

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
        self.given: list[int] = []
        self.ended: list[tuple[str, int, int]] = []
        pools = itertools.count(1)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(pools))
        for name in ("endAllocateToPool", "releasePool"):
            monkeypatch.setattr(torch._C, f"_cuda_{name}", partial(self.end, name), raising=False)
        self.current, self.generator = "first", Generator()
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: "recording")
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "graph", self.graph)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self.current)
        monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: setattr(self, "current", stream))
        monkeypatch.setattr(torch.cuda, "default_generators", (self.generator,))

    def end(self, name: str, index: int, pool: int) -> None:
        self.ended.append((name, index, pool))

    @contextmanager
    def graph(self, graph: Graph, pool: int, stream: str, capture_error_mode: str) -> Iterator[None]:
        """As torch's: where the step fails, ending the recording fails too, and the stream stays what it is."""
        self.given.append(pool)
        graph.into = pool
        self.current = stream
        try:
            yield
        finally:
            if sys.exception() is not None:
                raise RuntimeError("operation failed due to a previous error during capture")
        self.current = "first"


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    return Card(monkeypatch)


def play(tape: CudaGraphs, key: str, step: Any = lambda: None, kind: str = "kind") -> None:
    for _ in range(_EAGER_RUNS + 1):
        tape.run((key,), kind, step)


def test_recordings_share_a_pool(card: Card) -> None:
    tape = CudaGraphs(torch.device("cuda:0"))
    play(tape, "a")
    play(tape, "b")
    assert card.given == [1, 1]


def test_a_pool_whose_recordings_are_gone_is_not_used_again(card: Card) -> None:
    tape = CudaGraphs(torch.device("cuda:0"))
    play(tape, "a")
    tape.drop(lambda key: True)
    play(tape, "b")
    assert card.given == [1, 2]


def test_a_recording_that_fails_leaves_nothing_in_the_midst_of_it(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    taken: list[str] = []

    def waits_for_the_host() -> None:
        if card.current == "recording":
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        taken.append(card.current)

    tape = CudaGraphs(torch.device("cuda:0"))
    play(tape, "before")
    play(tape, "waits", waits_for_the_host, "one that waits")
    assert taken == ["first"] * (_EAGER_RUNS + 1), "a step that cannot be recorded is taken all the same"
    assert card.generator.state == "its own"
    assert not tape.graphs, "recordings that drew from the generator's former state are made again"
    assert card.ended == [("endAllocateToPool", 0, 1), ("releasePool", 0, 1)], "the allocator is told that it is over"
    assert "without CUDA graphs" in caplog.text
    assert "not permitted" in caplog.text, "what went wrong first, not that ending it failed too"
    assert "more" not in caplog.text
    play(tape, "waits elsewhere", waits_for_the_host, "one that waits")
    assert len(card.given) == 2, "what failed once is not tried again"
    play(tape, "before")
    assert ("before",) in tape.graphs


def test_a_recording_without_room_says_so_and_can_be_tried_again(card: Card) -> None:
    room = False

    def large() -> None:
        if card.current == "recording" and not room:
            raise torch.OutOfMemoryError("no room")

    tape = CudaGraphs(torch.device("cuda:0"))
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        play(tape, "large", large)
    assert card.current == "first"
    assert card.generator.state == "its own"
    room = True
    play(tape, "large", large)
    assert ("large",) in tape.graphs


class Held:
    """Stands for the gradients' graph of a step, which remembers how many clients there were."""


def test_a_recording_that_fails_keeps_nothing_of_its_step(card: Card) -> None:
    seen: list[weakref.ref[Held]] = []

    def waits_for_the_host() -> None:
        held = Held()
        seen.append(weakref.ref(held))
        if card.current == "recording":
            raise RuntimeError("operation not permitted when stream is capturing")

    gc.disable()  # what nobody refers to is gone at once; a circle of references would wait for the collector
    try:
        play(CudaGraphs(torch.device("cuda:0")), "waits", waits_for_the_host)
        assert [ref() for ref in seen] == [None] * len(seen)
    finally:
        gc.enable()
