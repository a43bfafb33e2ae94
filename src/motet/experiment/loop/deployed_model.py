"""The model that a client would deploy, put together from the server's state and the client's own."""

from __future__ import annotations

from typing import Any, Protocol

from motet.core.errors import ConfigError
from motet.core.rebased import ModelParams
from motet.core.script import ClientId
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.checkpoint import RunProgress


class StateReader(Protocol):
    """Reads the states of each client's programs."""

    def get(self, program: str, client: ClientId) -> Any: ...


def assemble_model(
    plan: RunPlan, progress: RunProgress, client_states: StateReader, client: ClientId | None = None
) -> ModelParams:
    """Return the model of a client; without one, the model for a client without local state."""
    algorithm, federation = plan.algorithm, plan.federation
    if client is None:
        server = federation.server_context(progress.rounds)
        params = algorithm.assemble(server, algorithm.view(progress.state, ""), None)
    else:
        context = federation.context(
            client, progress.rounds, "", _reject_call, lambda program: client_states.get(program, client)
        )
        view = algorithm.view(progress.state, client)
        params = algorithm.assemble(context, view, context.read_state(algorithm.name))
    if params is None:
        raise ConfigError(
            f"{algorithm.name} trains only the server's model, and {client} has a model of another architecture; "
            "leave the client out."
        )
    return params


def _reject_call(address: str, _: Any) -> Any:
    raise RuntimeError(f"{address} was called outside a round")
