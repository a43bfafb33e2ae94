"""Modules of Triton kernels, loaded where they are first needed and only if they work there."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from motet.core.errors import first_line


@cache
def _load_kernels(device: torch.device, name: str = "triton_kernels") -> ModuleType | None:
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


def kernels_for(x: Tensor, name: str = "triton_kernels") -> ModuleType | None:
    """Return a module of Triton kernels if they work on the tensor's device. None of them computes in float64."""
    return _load_kernels(x.device, name) if x.is_cuda and x.dtype != torch.float64 else None


def forget_probes() -> None:
    """Let every module show once more that its kernels work."""
    _load_kernels.cache_clear()
