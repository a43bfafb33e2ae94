"""Who a client is to its peers: signing keys that lie in files, or new ones for every sum.

With a folder, `<client>.pub` is everybody's public key and lies on every client's machine; `<client>.key` lies on that
client's machine alone. A server that makes up clients, or stands between two of them, is then found out. Without a folder,
peers know each other only as the server introduces them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from motet.core.errors import ConfigError
from motet.core.script import ClientId
from motet.secure.crypto import KEY_BYTES, RandomBytes, SigningKey


@dataclass(frozen=True)
class Identities:
    folder: str | None = None

    def signer(self, client: ClientId, draw: RandomBytes) -> SigningKey:
        return SigningKey(draw(KEY_BYTES) if self.folder is None else _read(self._path(client, "key")))

    def known(self, clients: Iterable[ClientId]) -> dict[ClientId, bytes] | None:
        """Public keys on file; None if there are no files to compare with."""
        return None if self.folder is None else {c: _read(self._path(c, "pub")) for c in clients}

    def create(self, client: ClientId, draw: RandomBytes) -> None:
        """A new identity; the secret half is to be carried to that client's machine, and removed here."""
        secret = self._path(client, "key")
        secret.parent.mkdir(parents=True, exist_ok=True)
        signer = SigningKey(draw(KEY_BYTES))
        if secret.exists():
            raise ConfigError(
                f"{secret} is there already; a new identity would shut {client} out. Remove it if that is meant."
            )
        secret.touch(mode=0o600)
        secret.write_text(signer.secret.hex() + "\n")
        self._path(client, "pub").write_text(signer.public.hex() + "\n")

    def _path(self, client: ClientId, ending: str) -> Path:
        if not client or Path(client).name != client:
            raise ConfigError(
                f"'{client}' cannot be the name of a file, so it can have no identity there; rename the client."
            )
        return Path(self.folder or "") / f"{client}.{ending}"


def _read(path: Path) -> bytes:
    try:
        found = bytes.fromhex(path.read_text("utf-8").strip())
    except (OSError, ValueError):
        found = b""
    if len(found) != KEY_BYTES:
        raise ConfigError(
            f"{path} holds no key of {KEY_BYTES} bytes in hexadecimal; make one: motet identities {path.parent} {path.stem}"
        )
    return found
