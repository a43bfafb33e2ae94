"""A checksum of the result of every operation and Triton kernel, to find the first one that differs between two trainings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes per element


class OperationLog(TorchDispatchMode):
    """Inside a `with` block, all results are added. Use `log_kernels` around it for Triton kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self._checksums: list[Tensor] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        # Views are skipped, and memory that is not yet written.
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in function._schema.returns)
        if not is_view and not any(word in str(function) for word in ("empty", "set_")):
            self.add(str(function), results_with_a_value(str(function), result))
        return result

    def add(self, name: str, results: Iterable[Any]) -> None:
        with _disable_current_modes():
            for x in results:
                if isinstance(x, Tensor) and x.numel():
                    self.names.append(f"{name} {tuple(x.shape)} {x.dtype}")
                    self._checksums.append(_checksum(x.detach()))

    def checksums(self) -> list[int]:
        return [int(checksum) for checksum in self._checksums]


def _checksum(x: Tensor) -> Tensor:
    """Weight the bits by position: in a plain sum, one element that is larger hides another one that is smaller."""
    bits = x.contiguous().view(_INTEGERS[x.element_size()]).flatten()
    return (bits * torch.arange(1, bits.numel() + 1, device=x.device)).sum()


def results_with_a_value(name: str, result: Any) -> list[Any]:
    """Return the tensors of a result. Attention also returns the seed of its dropout, which is not set without dropout."""
    is_attention = "scaled_dot_product" in name
    return [x for x in tree_leaves(result) if isinstance(x, Tensor) and not (is_attention and x.dim() == 0)]


@contextmanager
def log_kernels(log: OperationLog) -> Iterator[None]:
    """Inside the block, also add all tensors that a Triton kernel was called with, after the call."""
    from triton.runtime.jit import JITFunction

    run = JITFunction.run

    def run_and_log(kernel: Any, *args: Any, **options: Any) -> Any:
        result = run(kernel, *args, **options)
        log.add(kernel.fn.__name__, args)
        return result

    with patch.object(JITFunction, "run", run_and_log):
        yield


def first_difference(first: OperationLog, second: OperationLog) -> str:
    """Describe the first operation with another result; "" if all are equal."""
    entries = zip(first.names, second.names, first.checksums(), second.checksums(), strict=False)
    for i, (a, b, x, y) in enumerate(entries):
        if a != b:
            return f"operation {i} is {a}, then {b}"
        if x != y:
            return f"operation {i} gives other bits: {a}"
    return "" if len(first.names) == len(second.names) else "one training has more operations"
