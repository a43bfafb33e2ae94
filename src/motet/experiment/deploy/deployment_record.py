"""The record of a served run: the clients that joined, so that it can be served again."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from motet.core.script import ClientId
from motet.transport.private_files import write_atomically


@dataclass
class DeploymentRecord:
    """deployment.json: the run's identifier and its clients. A client is recorded before it is admitted."""

    path: Path
    run: str
    clients: list[ClientId]
    groups: dict[ClientId, str]  # empty if the run has no groups
    token_hashes: dict[ClientId, str] = field(default_factory=dict)  # of clients that no list allows

    @staticmethod
    def open(folder: Path) -> DeploymentRecord:
        """Read the record in a folder, or start a new one."""
        path = folder / "deployment.json"
        if not path.exists():
            return DeploymentRecord(path=path, run=secrets.token_hex(8), clients=[], groups={})
        record = json.loads(path.read_text("utf-8"))
        return DeploymentRecord(
            path=path,
            run=record["run"],
            clients=record["clients"],
            groups=record.get("groups", {}),
            token_hashes=record.get("token_hashes", {}),
        )

    def add_client(self, client: ClientId, group: str, token_hash: str = "") -> None:
        """Add a client that joins, with its group or "", and the hash of the token that its name is bound to."""
        self.groups |= {client: group} if group else {}
        self.token_hashes |= {client: token_hash} if token_hash else {}
        self.add_clients(client)

    def add_clients(self, *clients: ClientId) -> None:
        self.clients = sorted({*self.clients, *clients})
        record = {
            "run": self.run,
            "clients": self.clients,
            "groups": self.groups,
            "token_hashes": self.token_hashes,
        }
        write_atomically(self.path, json.dumps(record, indent=2).encode())
