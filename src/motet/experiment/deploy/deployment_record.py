"""Files of a served run: the clients that joined, so that it can be served again, and those that may join."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

import yaml

from motet.core.errors import ConfigError
from motet.core.script import ClientId
from motet.transport.spill_store import write_atomically

TOKEN_HASH_LENGTH = 64


@dataclass
class DeploymentRecord:
    """deployment.json: the run's identifier and its clients. A client is recorded before it is admitted."""

    path: Path
    run: str
    clients: list[ClientId]
    groups: dict[ClientId, str]  # empty if the run has no groups

    @staticmethod
    def open(folder: Path) -> DeploymentRecord:
        """Read the record in a folder, or start a new one."""
        path = folder / "deployment.json"
        if not path.exists():
            return DeploymentRecord(path=path, run=secrets.token_hex(8), clients=[], groups={})
        record = json.loads(path.read_text("utf-8"))
        return DeploymentRecord(
            path=path, run=record["run"], clients=record["clients"], groups=record.get("groups", {})
        )

    def add_client(self, client: ClientId, group: str) -> None:
        """Add a client that joins, with its group or ""."""
        self.groups |= {client: group} if group else {}
        self.add_clients(client)

    def add_clients(self, *clients: ClientId) -> None:
        self.clients = sorted({*self.clients, *clients})
        record = {"run": self.run, "clients": self.clients, "groups": self.groups}
        write_atomically(self.path, json.dumps(record, indent=2).encode())


def load_allowed(path: str) -> dict[ClientId, str]:
    """Read names and hashes of tokens, as `motet allow` writes them."""
    try:
        allowed = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(
            f"transport.allow: '{path}' cannot be read ({error}); create it with: motet allow {path} NAME…"
        ) from None
    if not isinstance(allowed, dict) or not all(
        isinstance(value, str) and len(value) == TOKEN_HASH_LENGTH for value in allowed.values()
    ):
        raise ConfigError(
            f"transport.allow: '{path}' must map names to hashes of tokens; create it with: motet allow {path} NAME…"
        )
    return {str(name): value for name, value in allowed.items()}
