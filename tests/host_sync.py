"""Finds training steps that wait for the host, on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from motet.learning.training.fit import Training
from motet.learning.training.step_schedule import DeviceSchedule

_REJECTED = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "is_nonzero", "equal.default", "unique")


class RejectHostSync(TorchDispatchMode):
    """Rejects operations that wait for the host or that make shapes depend on values: they cannot be captured.

    With `allow_scalars`, a number can be assigned to a part of a tensor. That copies on a CPU only.
    """

    def __init__(self, allow_scalars: bool = False) -> None:
        super().__init__()
        self.allow_scalars = allow_scalars

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        is_allowed = self.allow_scalars and "lift_fresh" in name and args[0].dim() == 0
        assert is_allowed or not any(operation in name for operation in _REJECTED), name
        if "index.Tensor" in name or "index_put" in name:
            assert not any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]), name
        return func(*args, **(kwargs or {}))


@contextmanager
def reject_host_sync_in_steps(allow_scalars: bool = False) -> Iterator[list[str]]:
    """Inside the block, reject such operations while a batch is selected and its loss and gradients are computed.

    Yields the names of the methods that were called.
    """
    original_losses, calls = Training._weighted_losses, list[str]()

    def checked(method: Any) -> Any:
        def call(*args: Any) -> Any:
            with RejectHostSync(allow_scalars):
                calls.append(method.__name__)
                result = method(*args)
                if method is original_losses:
                    result[0].sum().backward(retain_graph=True)
                return result

        return call

    with (
        patch.object(Training, "_weighted_losses", checked(original_losses)),
        patch.object(DeviceSchedule, "batch", checked(DeviceSchedule.batch)),
    ):
        yield calls
