"""A compile-only run compiles the missing kernels of a computation in threads. The compiler is real, the GPU is not there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.families import CASES, random_features, split_examples

from motet.core.params import Params
from motet.learning.executors import packed_executor
from motet.learning.jobs import Fit
from motet.learning.packed import kernel_modules
from motet.learning.packed.parallel_compilation import compile_kernels_of
from motet.learning.solver import Solver

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
DEVICE = torch.device("cuda")
# Triton's interpreter, which other tests use, replaces functions of the language and leaves some replaced. No test has run yet.
_LANGUAGE = {
    part: dict(vars(part)) for part in (tl, tl.core, tl.math, tl.tensor, tl.dtype, tl.core.tensor_descriptor_base)
}


class Driver:
    """Stands for an H200: it counts launches, and the threads that load kernels."""

    def __init__(self) -> None:
        self.launches, self.threads, self.utils = list[int](), set[int](), SimpleNamespace()
        self.utils.load_binary = self._load
        self.utils.get_device_properties = lambda _: {"max_shared_mem": 2**17}
        self.get_current_device = self.get_current_stream = lambda *_: 0

    def get_current_target(self) -> Any:
        return triton.backends.compiler.GPUTarget("cuda", 90, 32)

    def launcher_cls(self, *_: Any) -> Any:
        return lambda *args: self.launches.append(args[0])

    def _load(self, *_: Any) -> tuple[int, ...]:
        self.threads.add(threading.get_ident())
        return 0, 0, 0, 0, 1024


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    for part, members in _LANGUAGE.items():
        for name, member in members.items():
            if vars(part)[name] is not member:
                monkeypatch.setattr(part, name, member)
    fake = Driver()
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    return fake


def copy_number(source, target, value: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(target, tl.load(source) + value)


def copy_unknown(source, target, value: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(target, tl.load(source) + unknown_name)  # noqa: F821


def launch(kernel: Any, *values: int) -> None:
    x = torch.zeros(16)
    for value in values:
        kernel[(value,)](x, x, value)


def test_kernels_are_compiled_in_threads_and_launched_afterwards(driver: Driver) -> None:
    kernel = triton.runtime.jit.JITFunction(copy_number)
    launch(kernel, 1)
    compile_kernels_of(lambda: launch(kernel, 1, 2, 3, 2), DEVICE)
    assert driver.launches == [1, 1], "only the kernel that was there is launched"
    assert threading.get_ident() in driver.threads
    assert len(driver.threads) > 1
    driver.threads.clear()
    launch(kernel, 1, 2, 3)
    assert driver.launches[2:] == [1, 2, 3]
    assert not driver.threads, "all kernels are loaded"


def test_the_backward_pass_in_another_thread_compiles_its_kernels_too(driver: Driver) -> None:
    kernel = triton.runtime.jit.JITFunction(copy_number)
    backward = threading.Thread(target=launch, args=(kernel, 5))

    def compute() -> None:
        backward.start()
        backward.join()

    compile_kernels_of(compute, DEVICE)
    assert not driver.launches
    assert backward.ident not in driver.threads


def test_a_kernel_that_cannot_be_compiled_raises_when_it_is_launched(driver: Driver) -> None:
    kernel = triton.runtime.jit.JITFunction(copy_unknown)
    compile_kernels_of(lambda: launch(kernel, 1), DEVICE)
    with pytest.raises(triton.CompilationError, match="unknown_name"):
        launch(kernel, 1)


def test_a_module_shows_that_it_works_when_kernels_are_launched(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = triton.runtime.jit.JITFunction(copy_unknown)
    x: Any = SimpleNamespace(is_cuda=True, dtype=torch.float32, device=DEVICE)
    module, modules = SimpleNamespace(probe=lambda _: launch(kernel, 1)), list[Any]()
    monkeypatch.setattr(kernel_modules, "import_module", lambda _: module)
    monkeypatch.setattr(kernel_modules, "_MODULES", {})

    def find_kernels() -> None:
        modules.append(kernel_modules.kernels_for(x))

    for _ in range(2):
        compile_kernels_of(find_kernels, DEVICE)
        find_kernels()
    assert modules == [module, None, None, None]
    assert caplog.text.count("Triton cannot compile") == 1


def test_a_failed_computation_ends_the_compile_only_run(driver: Driver) -> None:
    def fail() -> None:
        launch(kernel, 4)
        raise ValueError("layers")

    kernel = triton.runtime.jit.JITFunction(copy_number)
    with pytest.raises(ValueError, match="layers"):
        compile_kernels_of(fail, DEVICE)
    launch(kernel, 4)
    assert driver.launches == [4]


def test_nothing_is_computed_without_a_gpu() -> None:
    compile_kernels_of(lambda: pytest.fail("computed"), torch.device("cpu"))


def test_a_compile_only_run_changes_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["Bert SequenceClassification"]
    model, features = case.model(), random_features(case, 12)
    compiled: list[int] = []

    def train(compile_kernels: Callable[..., None]) -> list[torch.Tensor]:
        monkeypatch.setattr(packed_executor, "compile_kernels_of", compile_kernels)
        executor = packed_executor.PackedExecutor(torch.device("cpu"), width=2)
        for i, examples in enumerate(split_examples(features, (5, 4, 3))):
            solver = Solver(optimizer="adamw", lr=1e-3, batch=2, epochs=2)
            executor.submit(i, Fit(model, model.initial_params, examples, case.objective, solver, seed=i))
        results = dict(executor.wait_completed()) | dict(executor.wait_completed())
        return [results[i].params.flat for i in range(3)]

    def compile_kernels(compute: Callable[[], Any], _: torch.device) -> None:
        compiled.append(len(compute()))

    expected = train(lambda *_: None)
    assert all(map(torch.equal, train(compile_kernels), expected))
    assert compiled == [2], "once for a kind of jobs"


def test_a_new_base_under_adapters_needs_no_other_compile_only_run(monkeypatch: pytest.MonkeyPatch) -> None:
    case, compiled = CASES["Bert SequenceClassification"], list[torch.device]()
    model, features = case.model(), random_features(case, 12)
    monkeypatch.setattr(packed_executor, "compile_kernels_of", lambda _, device: compiled.append(device))
    executor = packed_executor.PackedExecutor(torch.device("cpu"), width=2)
    for _ in range(2):  # rounds of FedEx-LoRA, for example
        update = Params.from_tensors({})
        for i, examples in enumerate(split_examples(features, (5, 4))):
            job = Fit(
                model, model.initial_params, examples, case.objective, Solver(batch=4), seed=i, base_update=update
            )
            executor.submit(i, job)
        executor.wait_completed()
    assert len(compiled) == 1
