"""Access to the Hugging Face hub on a machine that may have no network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hub_access() -> Iterator[None]:
    """Load from the hub inside this block. If it cannot be reached, only the files of this machine are used.

    Without this, huggingface_hub repeats every request for half a minute before it looks at its cache.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or _is_hub_reachable():
        yield
        return
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = False


def find_cached_model(name: str) -> Path | None:
    """Return the folder of a model of the hub on this machine. Nothing is downloaded."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):
        return None


def _is_hub_reachable() -> bool:
    """Send one request. Any answer will do, also an error or a redirection."""
    from huggingface_hub import constants, get_session
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of the HTTP package that this version uses

    try:
        get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT, follow_redirects=False)
    except HTTPError:  # no connection, or a time limit
        return False
    return True
