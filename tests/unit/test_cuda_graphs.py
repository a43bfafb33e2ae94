"""Capture and replay of CUDA graphs, with fakes for the GPU. benchmarks/captured_steps.py tests real graphs."""

from __future__ import annotations

import gc
import itertools
import weakref
from functools import partial
from typing import Any

import pytest
import torch

from motet.learning.packed.cuda_graphs import _EAGER_RUNS, CudaGraphs

DEVICE = torch.device("cuda:0")


class FakeGraph:
    def __init__(self) -> None:
        self.memory_pool, self.replays = 0, 0

    def pool(self) -> int:
        return self.memory_pool

    def replay(self) -> None:
        self.replays += 1


class FakeGenerator:
    """In capture mode until it gets another state."""

    def __init__(self) -> None:
        self.state = "capturing"

    def clone_state(self) -> str:
        return "new state"

    def graphsafe_set_state(self, state: str) -> None:
        self.state = state


class FakeCuda:
    """The parts of torch.cuda that CudaGraphs uses. It records the pools of captures and the current stream."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.capture_pools: list[int] = []
        self.allocator_calls: list[tuple[str, int, int]] = []
        self.stream, self.generator = "main", FakeGenerator()
        pools = itertools.count(1)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(pools))
        for name in ("endAllocateToPool", "releasePool"):
            monkeypatch.setattr(torch._C, f"_cuda_{name}", partial(self.call_allocator, name), raising=False)
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: "capture")
        monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
        monkeypatch.setattr(torch.cuda, "graph", partial(FakeCapture, self))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self.stream)
        monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: setattr(self, "stream", stream))
        monkeypatch.setattr(torch.cuda, "default_generators", (self.generator,))

    def call_allocator(self, name: str, index: int, pool: int) -> None:
        self.allocator_calls.append((name, index, pool))

    @property
    def is_capturing(self) -> bool:
        return self.stream == "capture"


class FakeCapture:
    """Like torch.cuda.graph: if the step fails, ending the capture fails too, and the stream is not reset."""

    def __init__(self, cuda: FakeCuda, graph: FakeGraph, pool: int, stream: str, capture_error_mode: str) -> None:
        self.cuda, self.stream = cuda, stream
        cuda.capture_pools.append(pool)
        graph.memory_pool = pool

    def __enter__(self) -> None:
        self.cuda.stream = self.stream

    def __exit__(self, error_type: type[BaseException] | None, *_: Any) -> None:
        if error_type is not None:
            raise RuntimeError("operation failed due to a previous error during capture")
        self.cuda.stream = "main"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)


def run_until_captured(graphs: CudaGraphs, key: str, step: Any = lambda: None, kind: str = "kind") -> None:
    for _ in range(_EAGER_RUNS + 1):
        graphs.run((key,), kind, step)


def test_graphs_share_a_memory_pool(cuda: FakeCuda) -> None:
    graphs = CudaGraphs(DEVICE)
    run_until_captured(graphs, "a")
    run_until_captured(graphs, "b")
    assert cuda.capture_pools == [1, 1]


def test_a_captured_step_is_replayed(cuda: FakeCuda) -> None:
    calls: list[str] = []
    graphs = CudaGraphs(DEVICE)
    run_until_captured(graphs, "a", lambda: calls.append(cuda.stream))
    run_until_captured(graphs, "a", lambda: calls.append(cuda.stream))
    assert calls == ["main"] * _EAGER_RUNS + ["capture"]
    assert graphs.graphs["a",].replays == _EAGER_RUNS + 2


def test_another_shape_of_a_captured_kind_is_captured_after_one_run(cuda: FakeCuda) -> None:
    """Texts of uneven length bring many shapes, each of which occurs once in a round."""
    graphs = CudaGraphs(DEVICE)
    run_until_captured(graphs, "a")
    for _ in range(2):
        graphs.run(("b",), "kind", lambda: None)
        graphs.run(("c",), "other kind", lambda: None)
    assert list(graphs.graphs) == [("a",), ("b",)]


def test_a_pool_without_graphs_is_not_used_again(cuda: FakeCuda) -> None:
    graphs = CudaGraphs(DEVICE)
    run_until_captured(graphs, "a")
    graphs.drop(lambda key: True)
    run_until_captured(graphs, "b")
    assert cuda.capture_pools == [1, 2]


def test_a_failed_capture_leaves_nothing_in_capture_mode(cuda: FakeCuda, caplog: pytest.LogCaptureFixture) -> None:
    eager_streams: list[str] = []

    def step_with_host_sync() -> None:
        if cuda.is_capturing:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        eager_streams.append(cuda.stream)

    graphs = CudaGraphs(DEVICE)
    run_until_captured(graphs, "before")
    run_until_captured(graphs, "sync", step_with_host_sync, "kind with host sync")
    assert eager_streams == ["main"] * (_EAGER_RUNS + 1), "a step that cannot be captured runs eagerly"
    assert cuda.generator.state == "new state"
    assert not graphs.graphs, "graphs that use the generator's old state are captured again"
    assert cuda.allocator_calls == [("endAllocateToPool", 0, 1), ("releasePool", 0, 1)]
    assert "without CUDA graphs" in caplog.text
    assert "not permitted" in caplog.text, "the first error, not the one from ending the capture"
    assert "more" not in caplog.text
    run_until_captured(graphs, "sync in another shape", step_with_host_sync, "kind with host sync")
    assert len(cuda.capture_pools) == 2, "a kind that failed is not tried again"
    run_until_captured(graphs, "before")
    assert ("before",) in graphs.graphs


def test_a_capture_without_memory_raises_and_can_be_tried_again(cuda: FakeCuda) -> None:
    has_memory = False

    def large_step() -> None:
        if cuda.is_capturing and not has_memory:
            raise torch.OutOfMemoryError("no memory")

    graphs = CudaGraphs(DEVICE)
    with pytest.raises(torch.OutOfMemoryError, match="no memory"):
        run_until_captured(graphs, "large", large_step)
    assert cuda.stream == "main"
    assert cuda.generator.state == "new state"
    has_memory = True
    run_until_captured(graphs, "large", large_step)
    assert ("large",) in graphs.graphs


class AutogradGraph:
    """Stands for the autograd graph of a step."""


def test_a_failed_capture_keeps_nothing_of_its_step_alive(cuda: FakeCuda) -> None:
    references: list[weakref.ref[AutogradGraph]] = []

    def step_with_host_sync() -> None:
        autograd_graph = AutogradGraph()
        references.append(weakref.ref(autograd_graph))
        if cuda.is_capturing:
            raise RuntimeError("operation not permitted when stream is capturing")

    gc.disable()  # a reference cycle would wait for the collector
    try:
        run_until_captured(CudaGraphs(DEVICE), "sync", step_with_host_sync)
        assert [reference() for reference in references] == [None] * len(references)
    finally:
        gc.enable()
