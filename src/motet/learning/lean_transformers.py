"""Import the models of transformers, and NLTK, without packages that no command of Motet uses.

The modeling files of transformers import torch's compiler, tensor parallelism, torchvision, scipy and sklearn. A text
model on one device calls none of them, and they take more than half of the time before a command trains. After
`allow_lean_import`:

- the compiler, torch._dynamo, is imported when something uses it;
- transformers behaves as if torch were built without torch.distributed, and as if torchvision, Pillow, scipy and sklearn
  were not installed;
- transformers reads the metadata of the packages that it asks for, and not of all that are installed;
- garbage is collected less often until the import is over, and imported objects are left out of later collections.

Only the commands of `motet` allow this, because their processes do nothing else. It depends on no version of torch or
transformers: code that needs more of the compiler than its decorators gets the real one. If the lean import fails all
the same, everything is imported as usual.

No documented way does this: torch's switches disable the compiler and still import it, and Python's lazy modules load
as soon as transformers reads a decorator from them (docs/design/0002-cpu.md has the measurements).
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_UNUSED = tuple(f"is_{name}_available" for name in ("torch_distributed", "torchvision", "vision", "scipy", "sklearn"))
_MODELS, _MASKS, _PARALLELISM = "transformers.modeling_utils", "transformers.masking_utils", "torch.distributed.tensor"
_COMPILER, _TRACING = "torch._dynamo", "torch._dynamo._trace_wrapped_higher_order_op"
_MARKS = ("allow_in_graph", "assume_constant_result", "disable")  # decorators that tell the compiler about a function
_OBJECTS_PER_COLLECTION = 100_000  # while importing; Python's default is 700
_is_allowed = False
_postponed: dict[str, ModuleType] = {}
_thresholds = gc.get_threshold()


def allow_lean_import() -> None:
    """Let the first import of transformers' models in this process be a lean one."""
    global _is_allowed  # noqa: PLW0603 - what is imported is a property of the process
    _is_allowed = True
    gc.set_threshold(_OBJECTS_PER_COLLECTION)


def import_masking_utils() -> Any:
    """Import `transformers.masking_utils`, and leanly the base class of all models, if that is allowed."""
    if _is_allowed and not {_COMPILER, _MODELS} & set(sys.modules):
        _import_leanly()
    masking_utils = importlib.import_module(_MASKS)
    if _is_allowed:
        gc.freeze()
        gc.set_threshold(*_thresholds)
    return masking_utils


def _import_leanly() -> None:
    with _installed_packages_on_demand():
        import transformers.utils

    modules: tuple[Any, ...] = (transformers.utils, transformers.utils.import_utils)
    replaced = [
        (module, name, getattr(module, name)) for module in modules for name in _UNUSED if hasattr(module, name)
    ]
    for module, name, _ in replaced:
        setattr(module, name, lambda: False)
    _postpone_compiler()
    try:
        importlib.import_module(_MODELS)
        importlib.import_module(_MASKS)
    except Exception:  # Python has removed the modules that failed, so that they can be imported again
        _end_postponement()
        for module, name, function in replaced:
            setattr(module, name, function)
    _import_on_access("torch.distributed")


class _InstalledPackages(Mapping[str, list[str]]):
    """The distributions of each package, as `importlib.metadata.packages_distributions` returns them.

    That function reads the lists of all installed files. A package such as torch has a distribution of its name, so they
    are not needed to find it.
    """

    def __init__(self, read_all: Callable[[], Mapping[str, list[str]]]) -> None:
        self.read_all = cache(read_all)

    def __getitem__(self, package: str) -> list[str]:
        try:
            importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            return self.read_all()[package]
        return [package]

    def __iter__(self) -> Iterator[str]:
        return iter(self.read_all())

    def __len__(self) -> int:
        return len(self.read_all())


@contextmanager
def _installed_packages_on_demand() -> Iterator[None]:
    metadata: Any = importlib.metadata
    read_all = metadata.packages_distributions
    metadata.packages_distributions = lambda: _InstalledPackages(read_all)
    try:
        yield
    finally:
        metadata.packages_distributions = read_all


def import_nltk() -> None:
    """Import NLTK, if that is allowed without scipy and sklearn (and so pandas), which it can work without."""
    with _hidden_modules("scipy.stats", "sklearn") if _is_allowed else nullcontext():
        importlib.import_module("nltk")


def save_leanly(save: Callable[[Path], object], folder: Path) -> None:
    """Save a model without a check whether it was compiled or is spread over devices, if that is possible."""
    try:
        with _skipped_checks():
            save(folder)
    except ImportError:
        save(folder)


@contextmanager
def _skipped_checks() -> Iterator[None]:
    models: Any = importlib.import_module(_MODELS)
    if not _is_postponed(_COMPILER) or _PARALLELISM in sys.modules or "unwrap_model" not in vars(models):
        yield
        return
    unwrap_model = models.unwrap_model
    models.unwrap_model = lambda model: model
    try:
        with _hidden_modules(_PARALLELISM):
            yield
    finally:
        models.unwrap_model = unwrap_model


@contextmanager
def _hidden_modules(*names: str) -> Iterator[None]:
    """Inside the block, these modules cannot be imported, unless they are already loaded."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type] # None: an import raises an ImportError
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def _postpone_compiler() -> None:
    """Replace the compiler by two modules with the names that torch and transformers read though nothing is compiled."""
    import torch

    def enter_tracing(*args: Any) -> Any:
        return _import_real(_TRACING).TransformGetItemToIndex(*args)

    decorators = dict.fromkeys(_MARKS, _leave_unmarked)
    _postponed[_COMPILER] = _create_stand_in(_COMPILER, {**decorators, "__path__": []})  # a package
    _postponed[_TRACING] = _create_stand_in(_TRACING, {"TransformGetItemToIndex": enter_tracing})
    sys.modules.update(_postponed)
    torch._dynamo = _postponed[_COMPILER]
    sys.meta_path.insert(0, _finder)


def _create_stand_in(module_name: str, names: dict[str, Any]) -> ModuleType:
    """Create a module with a few names. Its other names are those of the real module, which is imported to read them."""

    def read_real(name: str) -> Any:
        if name.startswith("__"):  # Python asks every module for these
            raise AttributeError(f"module '{module_name}' has no attribute '{name}'")
        return getattr(_import_real(module_name), name)

    module = ModuleType(module_name)
    vars(module).update(names, __getattr__=read_real)
    return module


class _CompilerFinder:
    """Imports the real compiler if another of its modules than the postponed ones is imported."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name.startswith(f"{_COMPILER}.") else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module: ModuleType = _import_real(spec.name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back its own specification. It has been executed already."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


_finder: Any = _CompilerFinder()


def _is_postponed(name: str) -> bool:
    return name in _postponed and sys.modules.get(name) is _postponed[name]


def _import_real(name: str) -> Any:
    _end_postponement()
    return importlib.import_module(name)


def _end_postponement() -> None:
    """Remove the stand-ins, so that the next import finds the real modules."""
    import torch

    if not _is_postponed(_COMPILER):
        return
    sys.meta_path.remove(_finder)
    for name in _postponed:
        del sys.modules[name]
    del torch._dynamo


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
