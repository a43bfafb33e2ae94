"""A device that is not there: its tensors compute as on a CPU, but as little as a GPU's can they be mixed with the host's."""

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
_HOME = {Tensor.cpu, Tensor.item, Tensor.tolist, Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__}


class Away(Tensor):
    """Made by `away`; everything that is computed of it is away too, until `cpu()`."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _performed(func, args, kwargs or {})


def away(tensor: Tensor) -> Tensor:
    return torch.Tensor._make_subclass(Away, tensor)  # type: ignore[attr-defined, no-any-return, no-untyped-call]


@contextmanager
def elsewhere() -> Iterator[Callable[[Tensor], Tensor]]:
    """Inside, tensors can be sent away, and what is made with `device=` that device is made there, by its own generators."""
    making, made = _Making(), Seed.torch

    def drawn(seed: Seed, device: torch.device | str = "cpu") -> torch.Generator:
        generator = made(seed)
        if torch.device(device) == DEVICE:
            making.generators.append(generator)
        return generator

    with patch.object(Seed, "torch", drawn), making:
        yield away


class _Making(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.generators: list[torch.Generator] = []  # of the device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        there, generator = given.get("device") == DEVICE, given.get("generator")
        if generator is not None and any(generator is known for known in self.generators) != there:
            raise RuntimeError(f"{func} was given a generator of another device")
        return away(func(*args, **{**given, "device": "cpu"})) if there else func(*args, **given)


def _performed(func: Any, args: Any, kwargs: Any) -> Any:
    if func == Tensor.device.__get__:  # type: ignore[attr-defined]
        return DEVICE
    if func is Tensor.numpy:
        raise TypeError("a tensor that is away cannot be read by numpy; bring it home with cpu()")
    tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
    if any(not isinstance(t, Away) and t.dim() for t in tensors):
        raise RuntimeError(f"{func} was given tensors of two devices")
    with torch._C.DisableTorchFunctionSubclass():
        plain = tree_map(lambda leaf: leaf.as_subclass(Tensor) if isinstance(leaf, Away) else leaf, (args, kwargs))
        found = func(*plain[0], **plain[1])
    home = func in _HOME or (func == Tensor.to and "cpu" in map(str, (*args, *kwargs.values())))
    return found if home else tree_map(lambda leaf: away(leaf) if isinstance(leaf, Tensor) else leaf, found)
