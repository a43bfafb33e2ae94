"""The memory that a process may still use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from motet.benchmark.scheduler import split_resources
from motet.learning.executors import memory_budget
from motet.learning.executors.memory_budget import free_memory, is_memory_short, limit_device_memory

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


@pytest.fixture(autouse=True)
def no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "_FRACTIONS", {})


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """8000 bytes of memory are available."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8000))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1000 bytes, 300 are free, and this process has reserved 500 and uses 200 of them. It has captured no steps."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (300, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 200)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: [make_segment(500, 200)])
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda fraction, index: None)


def make_segment(total: int, allocated: int, pool: tuple[int, int] = (0, 0), device: int = 0) -> dict[str, Any]:
    """Return what torch's allocator says about a piece of memory. Captured steps have a pool of their own."""
    return {"device": device, "total_size": total, "allocated_size": allocated, "segment_pool_id": pool}


@pytest.mark.usefixtures("machine")
def test_the_cpu_budget_is_the_available_memory() -> None:
    assert free_memory(CPU) == 8000


@pytest.mark.usefixtures("machine")
def test_runs_that_share_a_machine_get_a_fraction_each() -> None:
    limit_device_memory(CPU, 0.25)
    assert free_memory(CPU) == 2000


@pytest.mark.usefixtures("machine")
def test_benchmarks_on_one_machine_divide_its_memory_and_their_jobs_divide_their_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    split_resources("cpu", jobs=4, memory_share=0.5)
    assert free_memory(CPU) == 8000 * 0.95 * 0.5 / 4
    split_resources("cpu", jobs=1, memory_share=0.5)
    assert free_memory(CPU) == 8000 * 0.5
    split_resources("cpu", jobs=1)
    assert free_memory(CPU) == 8000


@pytest.mark.usefixtures("gpu")
def test_the_gpu_budget_is_the_free_memory_and_what_is_reserved_but_unused() -> None:
    assert free_memory(GPU) == 300 + (500 - 200)


@pytest.mark.usefixtures("gpu")
def test_memory_that_captured_steps_keep_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch reports it as reserved and unused, but only captured steps can use it."""
    segments = [make_segment(200, 150), make_segment(300, 50, (0, 7)), make_segment(900, 0, (0, 7), device=1)]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    assert free_memory(GPU) == 300 + (200 - 150)
    assert not is_memory_short(GPU)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60, 1000))
    assert is_memory_short(GPU), "110 of 1000 bytes are left, and the steps keep 250"


@pytest.mark.usefixtures("gpu")
def test_a_limited_process_may_use_only_its_fraction_of_the_gpu() -> None:
    limit_device_memory(GPU, 0.6)
    assert free_memory(GPU) == (600 - 500) + (500 - 200)


@pytest.mark.usefixtures("gpu")
def test_a_process_above_its_limit_may_use_only_what_it_has_reserved() -> None:
    limit_device_memory(GPU, 0.4)
    assert free_memory(GPU) == 500 - 200
