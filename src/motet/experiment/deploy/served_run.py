"""A run with remote clients, read from the server's folder: its clients by name, and the states that are here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from motet.core.script import ClientId
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.deploy.deployment_record import DeploymentRecord
from motet.experiment.deploy.network_options import NetworkOptions
from motet.experiment.deploy.remote_federation import RemoteFederation, build_server_federation
from motet.experiment.deploy.stored_federation import read_federation
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.run_config import RunConfig
from motet.transport.journal import Journal


def clients_bring_data(config: RunConfig) -> bool:
    """Return True if the clients of a run have their own data, so that it is not on this machine."""
    if config.transport.type not in ("grpc", "mqtt", "flower"):
        return False
    return instantiate(NetworkOptions, config.transport.options, "transport").clients_bring_data


def load_federation(config: RunConfig, folder: Path, needs_data: bool = True) -> Federation | RemoteFederation:
    """Build the federation of a run in a folder. Clients with their own data have the names under which they joined.

    If it needs no data, none is read, and it has no texts. It is good for building models.
    """
    stored = None if needs_data else read_federation(folder, config)
    if not clients_bring_data(config):
        return stored or build_federation(config)
    options = instantiate(NetworkOptions, config.transport.options, "transport")
    record = DeploymentRecord.open(folder)
    local = stored or build_server_federation(config, options)
    return RemoteFederation(local=local, clients=tuple(record.clients), groups=record.groups)


class StoredStates:
    """The states of remote clients that were simulated by processes of this machine. They are read only."""

    def __init__(self, folder: Path) -> None:
        run = DeploymentRecord.open(folder).run
        folders = sorted((folder / "checkpoint" / "clients").glob(f"*/{run}"))
        self.journals = [Journal(path) for path in folders]

    def get(self, program: str, client: ClientId) -> Any:
        journal = next((j for j in self.journals if (program, client) in j.versions), None)
        return None if journal is None else journal.get(program, client)
