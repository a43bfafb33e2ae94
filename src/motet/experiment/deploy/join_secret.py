"""The token of a client that no list allows. It binds the client's name at the server to this state folder."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from contextlib import suppress
from pathlib import Path

from motet.transport.addresses import split_address
from motet.transport.private_files import PRIVATE_FILE, create_private_folder

SECRET_FILE = "join_secret"


def derive_join_token(folder: Path, server: str, secret: bytes | None = None) -> str:
    """Return the token for a server. It is the same each time, and a server cannot use it at another one.

    It is derived from `secret`, or else from a secret in the folder.
    """
    host, _ = split_address(server)
    return hmac.new(secret or _load_secret(folder), host.encode(), hashlib.sha256).hexdigest()


def _load_secret(folder: Path) -> bytes:
    """Read the secret of a folder, or create it. Several processes may do so at once."""
    create_private_folder(folder)
    path, temporary = folder / SECRET_FILE, folder / f".{SECRET_FILE}.{secrets.token_hex(8)}"
    if not path.exists():
        temporary.touch(mode=PRIVATE_FILE)
        temporary.write_bytes(secrets.token_bytes(32))
        with suppress(FileExistsError):
            path.hardlink_to(temporary)  # unlike a rename, it does not replace the secret of a faster process
        temporary.unlink()
    return path.read_bytes()
