"""Import the models of transformers without packages that no command of Motet uses.

The modeling files of transformers import torch's compiler, tensor parallelism, scipy and sklearn. A text model on one
device calls none of them, and they take a third of the time before a command trains. After `allow_lean_import`:

- the compiler, torch._dynamo, is imported when something calls it;
- transformers behaves as if torch were built without torch.distributed, and as if scipy and sklearn were
  not installed;
- garbage is collected less often until the import is over, and imported objects are left out of later collections.

Only the commands of `motet` allow this, because their processes do nothing else. In a notebook, and with versions of
torch and transformers that were not tried together, everything is imported as usual.

No documented way does the same: torch's switches disable the compiler and still import it, and lazy modules fail because
transformers reads names from them while it is imported (docs/design/0002-cpu.md has the measurements).
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_TORCH, _TRANSFORMERS = "2.13.", ("5.17.", "5.22.")  # versions that were tried with a lean import
_UNUSED = ("is_torch_distributed_available", "is_scipy_available", "is_sklearn_available")  # of transformers.utils
_MODELS, _PARALLELISM = "transformers.modeling_utils", "torch.distributed.tensor"
_COMPILER, _TRACING = "torch._dynamo", "torch._dynamo._trace_wrapped_higher_order_op"
_MARKS = ("allow_in_graph", "assume_constant_result", "disable")  # decorators that tell the compiler about a function
_OBJECTS_PER_COLLECTION = 100_000  # while importing; Python's default is 700
_is_allowed = False
_thresholds = gc.get_threshold()


def allow_lean_import() -> None:
    """Let the first import of transformers' models in this process be a lean one."""
    global _is_allowed  # noqa: PLW0603 - what is imported is a property of the process
    _is_allowed = True
    gc.set_threshold(_OBJECTS_PER_COLLECTION)


def import_masking_utils() -> Any:
    """Import `transformers.masking_utils`, and leanly the base class of all models, if that is allowed."""
    import transformers.utils

    if _is_allowed and _are_versions_tried() and not {_COMPILER, _MODELS} & set(sys.modules):
        for name in _UNUSED:
            for module in (transformers.utils, transformers.utils.import_utils):
                setattr(module, name, lambda: False)
        with _postponed_compiler():
            importlib.import_module(_MODELS)
            importlib.import_module("transformers.masking_utils")
        _import_on_access("torch.distributed")
    masking_utils = importlib.import_module("transformers.masking_utils")
    if _is_allowed:
        gc.freeze()
        gc.set_threshold(*_thresholds)
    return masking_utils


def _are_versions_tried() -> bool:
    import torch
    import transformers

    return torch.__version__.startswith(_TORCH) and transformers.__version__.startswith(_TRANSFORMERS)


@contextmanager
def lean_saving() -> Iterator[None]:
    """Save models in the block without a check whether they were compiled or are spread over devices."""
    if not _is_allowed or {_COMPILER, _PARALLELISM} & set(sys.modules):
        yield
        return
    models: Any = importlib.import_module(_MODELS)
    unwrap_model = models.unwrap_model
    models.unwrap_model = lambda model: model
    sys.modules[_PARALLELISM] = None  # type: ignore[assignment] # an import raises an ImportError
    try:
        yield
    finally:
        models.unwrap_model = unwrap_model
        del sys.modules[_PARALLELISM]


@contextmanager
def _postponed_compiler() -> Iterator[None]:
    """Replace the compiler by two modules with the names that transformers imports from it."""
    import torch

    def enter_tracing(*args: Any) -> Any:
        return importlib.import_module(_TRACING).TransformGetItemToIndex(*args)

    compiler: Any = ModuleType(_COMPILER)
    tracing: Any = ModuleType(_TRACING)
    vars(compiler).update(dict.fromkeys(_MARKS, _leave_unmarked))
    tracing.TransformGetItemToIndex = enter_tracing
    sys.modules.update({_COMPILER: compiler, _TRACING: tracing})
    torch._dynamo = compiler
    try:
        yield
    finally:
        del torch._dynamo, sys.modules[_COMPILER], sys.modules[_TRACING]


def _import_on_access(package: str) -> None:
    """Import modules of a package when they are read. peft reads torch.distributed.tensor, but does not import it."""

    def import_module(name: str) -> Any:
        try:
            return importlib.import_module(f"{package}.{name}")
        except ImportError:
            raise AttributeError(f"module '{package}' has no attribute '{name}'") from None

    vars(sys.modules[package]).setdefault("__getattr__", import_module)


def _leave_unmarked(function: Any = None, *_: Any, **__: Any) -> Any:
    """A decorator, with or without arguments, that does nothing."""
    return _leave_unmarked if function is None else function
