"""The list of allowed clients: names and hashes of their tokens, in a file that `motet allow` writes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import yaml

from motet.atomic_files import Stamp, read_stamp
from motet.core.errors import ConfigError
from motet.core.script import ClientId
from motet.experiment.recipe.yaml_files import read_user_yaml
from motet.transport.admission import generate_token, hash_token
from motet.transport.private_files import write_atomically

_log = logging.getLogger(__name__)
TOKEN_HASH_LENGTH = 64


class AllowList:
    """The allowed clients of a file. A running server reads the file again whenever it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.token_hashes: dict[ClientId, str] = {}
        self._stamp: Stamp | None = None

    def refresh(self) -> dict[ClientId, str]:
        """Return the hashes of the tokens by client. A file that cannot be read allows nobody."""
        stamp = read_stamp(self.path)
        if stamp is None or stamp != self._stamp:
            try:
                self.token_hashes = load_allowed(str(self.path))
            except ConfigError as error:
                if self.token_hashes:
                    _log.error("no client is allowed any more: %s", error)
                self.token_hashes, stamp = {}, None
            self._stamp = stamp
        return self.token_hashes


def load_allowed(path: str) -> dict[ClientId, str]:
    """Read names and hashes of tokens, as `motet allow` writes them."""
    allowed = read_user_yaml(Path(path), "transport.allow", f"Create it with: motet allow {path} NAME…")
    if not isinstance(allowed, dict) or not all(
        isinstance(value, str) and len(value) == TOKEN_HASH_LENGTH for value in allowed.values()
    ):
        raise ConfigError(
            f"transport.allow: '{path}' must map names to hashes of tokens; create it with: motet allow {path} NAME…"
        )
    return {str(name): value for name, value in allowed.items()}


def add_clients(path: Path, names: Iterable[ClientId], replace: bool = False) -> dict[ClientId, str]:
    """Allow clients, and return their new tokens. With `replace`, they must have tokens, which become invalid."""
    allowed = load_allowed(str(path)) if path.exists() else {}
    tokens = {name: generate_token() for name in names}
    for name in tokens:
        if not replace and name in allowed:
            raise ConfigError(
                f"'{name}' has a token in {path} already; a new one would lock {name} out. "
                f"To replace it: motet allow {path} {name} --rotate"
            )
    if replace:
        _require_listed(path, allowed, tokens)
    _write(path, allowed | {name: hash_token(token) for name, token in tokens.items()})
    return tokens


def revoke_clients(path: Path, names: Iterable[ClientId]) -> None:
    """Remove clients from the list. A running server closes their connections."""
    allowed, revoked = load_allowed(str(path)), list(names)
    _require_listed(path, allowed, revoked)
    _write(path, {name: value for name, value in allowed.items() if name not in revoked})


def _require_listed(path: Path, allowed: Iterable[ClientId], names: Iterable[ClientId]) -> None:
    if missing := [name for name in names if name not in allowed]:
        raise ConfigError(f"'{missing[0]}' is not in {path}; it has: {', '.join(sorted(allowed)) or 'nobody'}.")


def _write(path: Path, allowed: dict[ClientId, str]) -> None:
    write_atomically(path, yaml.safe_dump(allowed).encode())
