"""A fake GPU: its tensors compute on the CPU, but as on a real GPU they cannot be mixed with CPU tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from motet.core.rng import Seed

DEVICE = torch.device("cuda", 0)
_TO_HOST = {Tensor.cpu, Tensor.item, Tensor.tolist, Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__}


class FakeDeviceTensor(Tensor):
    """A tensor on the fake device. Everything computed from it is there too, until `cpu()`."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run_on_device(func, args, kwargs or {})


def to_device(tensor: Tensor) -> Tensor:
    return torch.Tensor._make_subclass(FakeDeviceTensor, tensor)  # type: ignore[attr-defined, no-any-return, no-untyped-call]


@contextmanager
def fake_device() -> Iterator[Callable[[Tensor], Tensor]]:
    """Yield a function that moves tensors to the fake device.

    Inside the context, factory functions with `device=DEVICE` create tensors there, and seeds have generators for it.
    """
    mode, make_generator = _FactoryMode(), Seed.torch

    def make_device_generator(seed: Seed, device: torch.device | str = "cpu") -> torch.Generator:
        generator = make_generator(seed)
        if torch.device(device) == DEVICE:
            mode.device_generators.append(generator)
        return generator

    with patch.object(Seed, "torch", make_device_generator), mode:
        yield to_device


class _FactoryMode(TorchFunctionMode):
    """Intercepts functions that create tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.device_generators: list[torch.Generator] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        on_device, generator = kwargs.get("device") == DEVICE, kwargs.get("generator")
        if generator is not None and any(generator is known for known in self.device_generators) != on_device:
            raise RuntimeError(f"{func} got a generator of another device")
        return to_device(func(*args, **{**kwargs, "device": "cpu"})) if on_device else func(*args, **kwargs)


def _run_on_device(func: Any, args: Any, kwargs: Any) -> Any:
    if func == Tensor.device.__get__:  # type: ignore[attr-defined]
        return DEVICE
    if func is Tensor.numpy:
        raise TypeError("numpy cannot read a tensor on the fake device; call cpu() first")
    tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
    if any(not isinstance(tensor, FakeDeviceTensor) and tensor.dim() for tensor in tensors):
        raise RuntimeError(f"{func} got tensors of two devices")
    with torch._C.DisableTorchFunctionSubclass():
        cpu_args, cpu_kwargs = tree_map(_to_cpu, (args, kwargs))
        result = func(*cpu_args, **cpu_kwargs)
    to_host = func in _TO_HOST or (func == Tensor.to and "cpu" in map(str, (*args, *kwargs.values())))
    return result if to_host else tree_map(lambda leaf: to_device(leaf) if isinstance(leaf, Tensor) else leaf, result)


def _to_cpu(leaf: Any) -> Any:
    return leaf.as_subclass(Tensor) if isinstance(leaf, FakeDeviceTensor) else leaf
