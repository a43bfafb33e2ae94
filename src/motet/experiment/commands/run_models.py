"""The models of a run, from its last checkpoint: the global one, and those of its clients as far as they are here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from motet.algorithms.phases import PhaseView
from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.rebased import ModelParams, RebasedParams
from motet.core.script import ClientId
from motet.experiment.build.component_builders import build_components
from motet.experiment.build.federation import ClientGroup, Federation
from motet.experiment.build.run_plan import build_plan
from motet.experiment.commands.run_folder import load_config
from motet.experiment.commands.run_state import advise_progress
from motet.experiment.deploy.remote_federation import RemoteFederation
from motet.experiment.deploy.served_run import StoredStates, load_federation
from motet.experiment.loop.deployed_model import assemble_model
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.run_config import ComponentConfig
from motet.experiment.recipe.start_folder import enter_start_folder
from motet.learning.context import Context
from motet.learning.executors.serial_executor import SerialExecutor

MAX_LISTED_CLIENTS = 10


class RunModels:
    """Builds the models that the clients of a run would deploy. The run may be finished or interrupted.

    It reads the data of the run only if `needs_data`.
    """

    def __init__(self, folder: Path, needs_data: bool = False) -> None:
        self.config = load_config(folder)
        # A robust rule may need texts of the server. A model that is trained does not need the rule.
        components = build_components(replace(self.config, robust=ComponentConfig("none")))
        with enter_start_folder(folder) as path:
            self.federation = load_federation(self.config, path, needs_data)
            self.plan = build_plan(self.config, self.federation, components)
        self.run = FederatedRun(self.plan, SerialExecutor(torch.device("cpu")), folder=folder)
        if not self.run.restore():
            raise ConfigError(
                f"'{folder}' has no checkpoint yet, so there is no model to export. {advise_progress(folder)}"
            )
        # Remote clients keep their states. Those of processes that `motet run` started are in the run's folder.
        self.stored_states = StoredStates(folder) if (folder / "deployment.json").exists() else None

    @property
    def clients(self) -> list[ClientId]:
        return list(self.federation.clients)

    def group_for(self, client: ClientId | None) -> ClientGroup:
        """Return the group of a client, or of the server."""
        if isinstance(self.federation, Federation):
            return self.federation.server if client is None else self.federation.group_for(client)
        if client is not None and client not in self.federation.clients:
            raise ConfigError(f"there is no client '{client}'; the clients of this run are {list_names(self.clients)}.")
        return self.federation.local.server if client is None else self.federation.group_for(client)

    def has_model(self, client: ClientId | None) -> bool:
        """Return True if the model of a client, or without one the global model, is on this machine."""
        group = self.group_for(client)
        if self.stored_states is None or (self.stored_states.journals and isinstance(self.federation, Federation)):
            return client is not None or not self.plan.has_personal_models
        return self._has_complete_model(client or "", group, needs_state=client is not None)

    def build(self, client: ClientId | None) -> ModelParams:
        """Return the model of a client, or the global one."""
        states = self.stored_states or self.run.storage.client_states
        if client is None or not isinstance(self.federation, RemoteFederation):
            return assemble_model(self.plan, self.run.kept_progress, states, client)
        algorithm, progress, group = self.plan.algorithm, self.run.engine.progress, self.group_for(client)
        context = Context(
            client=client,
            round=progress.rounds,
            participant=group.participant(group.clients.start),
            seed=self.federation.seed.derive("client", client),
        )
        params = algorithm.assemble(context, algorithm.view(progress.state, client), None)
        if params is None:
            raise ConfigError(f"{client} cannot run the model of {algorithm.name}; leave it out.")
        return params

    def _has_complete_model(self, client: ClientId, group: ClientGroup, needs_state: bool) -> bool:
        """Return True if the server's state alone gives the model that a remote client would deploy."""
        algorithm: Any = self.plan.algorithm  # or the one of the current phase
        view = algorithm.view(self.run.state, client)
        if isinstance(view, PhaseView):
            algorithm, view = algorithm.phases[view.index].algorithm, view.inner
        if needs_state and algorithm.models_on_clients:
            return False
        params = view.params if isinstance(view, RebasedParams) else view
        return isinstance(params, Params) and params.layout == group.model.initial_params.layout


def list_names(clients: list[ClientId]) -> str:
    """Return the names of clients as text, with the number of those that are left out."""
    left_out = len(clients) - MAX_LISTED_CLIENTS
    names = ", ".join(clients[:MAX_LISTED_CLIENTS])
    return f"{names} and {left_out} others" if left_out > 0 else names
