"""Kernels on disk: one process compiles each of them. Threads stand for processes: the locks of files do not tell them apart."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from motet.cli import bench
from motet.experiment.build.cache_folder import keep_kernels, lock_entry

cache = pytest.importorskip("triton.runtime.cache")
SLOW_COMPILE_SECONDS = 0.3
KEY, NAME = "ab" * 16, "kernel.json"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRITON_CACHE_DIR", "TRITON_CACHE_MANAGER", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(name, "")  # restored after the test
        monkeypatch.delenv(name)
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path))
    keep_kernels()


def compile_kernel(compiled: threading.Semaphore, fails: bool = False) -> dict[str, str]:
    """Look a kernel up and compile it if it is missing, in the order in which Triton's compiler does."""
    manager: Any = cache.get_cache_manager(KEY)
    if group := manager.get_group(NAME):
        return dict(group)
    assert compiled.acquire(blocking=False), "a kernel is compiled once"
    threading.Event().wait(SLOW_COMPILE_SECONDS)  # the others look it up in the meantime
    if fails:
        raise ValueError("ptxas")
    group = {NAME: manager.put("{}", NAME)}
    manager.put_group(NAME, group)
    return dict(group)


def test_one_process_compiles_a_kernel_and_the_others_read_it(tmp_path: Path) -> None:
    compiled = threading.Semaphore(1)
    with ThreadPoolExecutor() as threads:
        results = [threads.submit(compile_kernel, compiled) for _ in range(3)]
    (path,) = {result.result()[NAME] for result in results}
    assert Path(path).is_relative_to(tmp_path / "kernels")


def test_a_compiler_that_fails_leaves_the_kernel_to_others() -> None:
    with pytest.raises(ValueError, match="ptxas"):
        compile_kernel(threading.Semaphore(1), fails=True)
    assert NAME in compile_kernel(threading.Semaphore(1))


def test_a_compiled_module_is_shared_too() -> None:
    first: Any = cache.get_cache_manager(KEY)
    assert first.get_file("launcher.so") is None
    entry = Path(first.cache_dir) / "launcher.so"
    with lock_entry(entry, max_wait=0.01) as is_locked:
        assert not is_locked, "the file is being compiled"
    first.put(b"module", "launcher.so")
    assert cache.get_cache_manager(KEY).get_file("launcher.so") == str(entry)
    with lock_entry(entry, max_wait=0.01) as is_locked:
        assert is_locked


def test_the_users_choice_of_a_cache_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_MANAGER", "triton.runtime.cache:FileCacheManager")
    keep_kernels()
    assert os.environ["TRITON_CACHE_MANAGER"] == "triton.runtime.cache:FileCacheManager"


def test_jobs_say_that_they_wait_for_cold_kernels_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    bench._announce_kernels("cpu", 4)
    bench._announce_kernels("cuda", 1)
    assert not capsys.readouterr().out
    bench._announce_kernels("cuda", 4)
    assert "once for all 4 jobs" in capsys.readouterr().out
    compile_kernel(threading.Semaphore(1))
    bench._announce_kernels("cuda", 4)
    assert not capsys.readouterr().out, "the kernels are there"
