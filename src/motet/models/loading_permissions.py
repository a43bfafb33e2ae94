"""Permissions to run Python code that a model brings along, and to download models.

They are settings of the process, not of a recipe: a recipe may come from a server or from another person, and only the
person at this machine can decide to run someone else's code on it (`--trust-remote-code`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from motet.hub_access import find_cached_model, hub_access
from motet.models.weight_files import check_weight_files

REMOTE_CODE_ADVICE = (
    "The model brings Python code, and Motet does not run it. If you trust its author, add --trust-remote-code to the "
    "command on this machine."
)


@dataclass(frozen=True)
class LoadingPermissions:
    remote_code: bool = False
    downloads: bool = True


_current = LoadingPermissions()


def loader_options() -> dict[str, Any]:
    """Return the options of `from_pretrained` that follow from the permissions."""
    return {"trust_remote_code": _current.remote_code, "local_files_only": not _current.downloads}


@contextmanager
def loading(path: str) -> Iterator[None]:
    """Load a model inside this block. The hub is asked only for a model that is no directory, if downloads are allowed.

    Raise a ValueError if the model names weights outside of its folder.
    """
    is_folder = Path(path).is_dir()
    folder = Path(path) if is_folder else find_cached_model(path)
    if folder is not None:
        check_weight_files(folder)
    with hub_access() if _current.downloads and not is_folder else nullcontext():
        yield


def is_remote_code_allowed() -> bool:
    return _current.remote_code


@contextmanager
def allow_remote_code(allowed: bool = True) -> Iterator[None]:
    """Run the code of models that are loaded inside this block, in any thread."""
    with _set_permissions(replace(_current, remote_code=allowed)):
        yield


@contextmanager
def forbid_downloads() -> Iterator[None]:
    """Load models inside this block only from files of this machine."""
    with _set_permissions(replace(_current, downloads=False)):
        yield


@contextmanager
def _set_permissions(permissions: LoadingPermissions) -> Iterator[None]:
    global _current  # noqa: PLW0603
    before, _current = _current, permissions
    try:
        yield
    finally:
        _current = before
