"""Client identities: signing keys from files, or new ones for every sum.

With a folder, every client's machine has `<client>.pub`, the public key of each client, and only its own
`<client>.key`. A server that invents clients, or sits between two of them, is then detected. Without a folder, clients
know each other only by what the server tells them.
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

    def signing_key(self, client: ClientId, random_bytes: RandomBytes) -> SigningKey:
        return SigningKey(random_bytes(KEY_BYTES) if self.folder is None else _read_key(self._path(client, "key")))

    def public_keys(self, clients: Iterable[ClientId]) -> dict[ClientId, bytes] | None:
        """Return the public keys on file, or None without a folder."""
        return None if self.folder is None else {c: self._public_key(c) for c in clients}

    def create(self, client: ClientId, random_bytes: RandomBytes, replace: bool = False) -> None:
        """Create a new identity. Move the secret key to the client's machine, and delete it here.

        With `replace`, the old one becomes invalid where the new public key is copied to.
        """
        path = self._path(client, "key")
        path.parent.mkdir(parents=True, exist_ok=True)
        key = SigningKey(random_bytes(KEY_BYTES))
        if not replace and (path.exists() or self._path(client, "pub").exists()):
            raise ConfigError(
                f"{client} has an identity in {path.parent} already; a new one would lock {client} out. "
                f"To replace it: motet identities {path.parent} {client} --rotate"
            )
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(key.secret.hex() + "\n")
        self._path(client, "pub").write_text(key.public.hex() + "\n")
        self._path(client, "revoked").unlink(missing_ok=True)

    def revoke(self, client: ClientId) -> None:
        """Withdraw an identity. From the next sum on, this machine takes part in no sum with the client."""
        public = self._path(client, "pub")
        if not public.exists():
            raise ConfigError(f"{public} does not exist, so {client} has no identity to revoke; check the name.")
        public.replace(self._path(client, "revoked"))
        self._path(client, "key").unlink(missing_ok=True)

    def _public_key(self, client: ClientId) -> bytes:
        if self._path(client, "revoked").exists():
            raise ConfigError(
                f"the identity of {client} was revoked; leave {client} out of the run, or give it a new one."
            )
        return _read_key(self._path(client, "pub"))

    def _path(self, client: ClientId, extension: str) -> Path:
        if not client or Path(client).name != client:
            raise ConfigError(
                f"'{client}' cannot be a file name, so it cannot have an identity file; rename the client."
            )
        return Path(self.folder or "") / f"{client}.{extension}"


def _read_key(path: Path) -> bytes:
    try:
        key = bytes.fromhex(path.read_text("utf-8").strip())
    except (OSError, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        is_public = path.suffix == ".pub"
        advice = f"ask {path.stem} for it" if is_public else f"create one: motet identities {path.parent} {path.stem}"
        raise ConfigError(f"{path} does not contain a key of {KEY_BYTES} bytes in hexadecimal; {advice}")
    return key
