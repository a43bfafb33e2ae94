"""The agreement of a client with its own data and a server: the run as the client's policy allows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from motet.core.errors import PrivacyError
from motet.core.script import ClientId, all_client_methods
from motet.experiment.build.run_components import RunComponents
from motet.experiment.deploy.audit_log import AUDIT_FILE, AuditLog
from motet.experiment.deploy.join_policy import JoinPolicy
from motet.experiment.deploy.request_guard import RequestGuard
from motet.experiment.recipe.run_config import RunConfig
from motet.models.model_config import ModelConfig
from motet.transport.admission import JoinAccepted


class PolicyOptions(Protocol):
    """The options of a client that an agreement depends on."""

    @property
    def names(self) -> tuple[ClientId, ...]: ...
    @property
    def policy(self) -> JoinPolicy: ...
    @property
    def identities(self) -> Path | None: ...
    @property
    def state_folder(self) -> Path: ...
    @property
    def server(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Agreement:
    """What a client offers to a server. `components` have the client's own minimum, identities and randomness."""

    terms: Mapping[str, Any]
    components: RunComponents
    programs: list[Any]
    guard: RequestGuard
    audit: AuditLog


def agree(
    acceptance: JoinAccepted, config: RunConfig, components: RunComponents, model: ModelConfig, options: PolicyOptions
) -> Agreement:
    """Check a server's run against the client's policy, before any data or model is loaded."""
    policy, identities = options.policy, options.identities
    policy.check_run(config, components, identities)
    policy.check_model(model)
    components = policy.enforce(components, identities)
    programs = components.deployed_programs(policy.evaluation)
    methods = {a: reveals for program in programs for a, reveals in all_client_methods(program).items()}
    policy.check_methods(methods, data_free=("secure", "private", "deliver"))
    terms = {**policy.describe(config, components, identities), "model": model.name}
    audit = AuditLog(options.state_folder / AUDIT_FILE)
    _check_unchanged(audit, acceptance)
    audit.append(
        "joined",
        run=acceptance.run,
        server=options.server,
        client=options.names[0],
        digest=acceptance.digest,
        terms=terms,
        methods=dict(methods),
    )
    guard = RequestGuard(policy, audit, acceptance.run, components, config.rounds)
    return Agreement(terms=terms, components=components, programs=programs, guard=guard, audit=audit)


def _check_unchanged(audit: AuditLog, acceptance: JoinAccepted) -> None:
    """Raise an error if the server changed the settings of a run after this client had joined it."""
    for entry in audit.entries:
        if entry["event"] == "joined" and entry["run"] == acceptance.run and entry["digest"] != acceptance.digest:
            audit.close()
            raise PrivacyError(
                f"the server changed the settings of the run {acceptance.run} after this client had joined it; this client "
                "keeps to the settings that it agreed to. Ask the operator of the server to start a new run."
            )
