"""The record of a served run: the clients that joined, so that it can be served again."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired, TypedDict

from motet.core.script import ClientId
from motet.transport.json_files import read_json, write_json


class DeploymentFile(TypedDict):
    """The content of deployment.json."""

    run: str
    clients: list[ClientId]
    groups: NotRequired[dict[ClientId, str]]
    token_hashes: NotRequired[dict[ClientId, str]]


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
        record = read_json(path, DeploymentFile)
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
        write_json(self.path, record)
