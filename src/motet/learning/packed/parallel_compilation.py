"""Compile the missing Triton kernels of a computation in parallel.

Triton compiles a kernel when it is launched, so a first step compiles dozens of kernels one after another. A compile-only
run computes the step once without the missing kernels: their launches are skipped, and threads compile them meanwhile.
Most of a compilation happens outside of Python, so threads are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock, get_ident
from typing import Any

import torch

from motet.learning.packed.kernel_modules import forget_new_probes


class CompilationHook:
    """A hook that Triton calls for a kernel that this process has not loaded. Triton skips the launch if it returns True."""

    def __init__(self) -> None:
        self.kernels: dict[tuple[Any, str], Future[None]] = {}  # by function and specialization
        self.lock, self.compilers = Lock(), set[int]()  # the compilers are threads
        self.pool = ThreadPoolExecutor(initializer=lambda: self.compilers.add(get_ident()))

    def __call__(self, *, fn: Any, compile: dict[str, Any], **_: Any) -> bool:
        if get_ident() in self.compilers:
            return False
        key = (fn.jit_function, compile["specialization_data"])
        with self.lock:  # the backward pass runs in a thread of torch
            if key not in self.kernels:
                self.kernels[key] = self.pool.submit(_load_kernel, *key, compile["device"])
        return True


def _load_kernel(function: Any, specialization: str, device: int) -> None:
    torch.cuda.set_device(device)
    kernel = function.preload(specialization)
    _ = kernel.run  # Triton 3.6 compiles the launcher when it is first read


def compile_kernels_of(compute: Callable[[], object], device: torch.device) -> None:
    """Compile and load all missing kernels of a computation on a GPU. What it computes meanwhile is undefined.

    No other thread may train at that time. A kernel that cannot be compiled is left to its first launch, which raises
    the error.
    """
    if device.type != "cuda":
        return
    try:
        from triton import knobs
    except ImportError:
        return
    hook, previous = CompilationHook(), knobs.runtime.jit_cache_hook
    knobs.runtime.jit_cache_hook = hook
    try:
        with forget_new_probes():
            compute()
    finally:
        hook.pool.shutdown()
        knobs.runtime.jit_cache_hook = previous
