"""Modules of Triton kernels, loaded where they are first needed and only if they work there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from motet.core.errors import first_line

_MODULES: dict[tuple[torch.device, str], ModuleType | None] = {}  # that were probed; None if they do not work


def kernels_for(x: Tensor, name: str = "triton_kernels") -> ModuleType | None:
    """Return a module of Triton kernels if they work on the tensor's device. None of them computes in float64."""
    if not x.is_cuda or x.dtype == torch.float64:
        return None
    key = (x.device, name)
    if key not in _MODULES:
        _MODULES[key] = _load_kernels(*key)
    return _MODULES[key]


@contextmanager
def forget_new_probes() -> Iterator[None]:
    """Inside the block no kernel is launched, so a module that is probed there is probed once more afterwards."""
    known = dict(_MODULES)
    try:
        yield
    finally:
        _MODULES.clear()
        _MODULES.update(known)


def _load_kernels(device: torch.device, name: str) -> ModuleType | None:
    try:
        kernels = import_module(f"motet.learning.packed.{name}")
        kernels.probe(device)
    except ImportError:  # Triton comes with torch for GPUs, but not on every system
        return None
    except Exception as error:  # Triton compiles on this machine: a compiler or its headers may be missing
        logging.getLogger("motet").warning(
            "training is slower because Triton cannot compile %s for %s (%s)", name, device, first_line(error)
        )
        return None
    return kernels
