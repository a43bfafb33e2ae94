"""Motet on Flower: `server_app` and `client_app` for the pyproject.toml of a Flower app, and Flower's clients in Motet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from motet.core.errors import ConfigError, MotetError
from motet.transport.flower_relay import relay_message

try:
    from flwr.app import Context, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError as error:  # flower_relay has checked the version
    raise ConfigError(f"Flower cannot be imported: {error}.") from None

client_app = ClientApp()
client_app.query()(relay_message)


def serve(grid: Grid, context: Context) -> None:
    """Run the recipe that `flwr run --run-config` names. Flower shows what is printed here."""
    from motet.experiment.commands.flower_server import serve_on_flower  # loads torch, which a ClientApp does not need

    def log(text: str) -> None:
        print(text, flush=True)

    try:
        finished = serve_on_flower(grid, context.run_config, log)
    except MotetError as error:
        log(f"error: {error}")
        raise
    log(f"the results are in {finished.folder}")


server_app = ServerApp()
server_app.main()(serve)


def create_clients(
    app: Callable[[Context], Any] | ClientApp,
    nodes: Mapping[str, Mapping[str, Any]],
    run_config: Mapping[str, Any] = {},
    first_weights: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make clients for `flower_federation` from a Flower app, by name.

    `app` is a `client_fn`, or a ClientApp with functions for messages (`@app.train()`). The latter does not tell the first
    weights of its model, so give them as a `state_dict`. `nodes` has the node-config of each client, such as
    {"north": {"partition-id": 0, "num-partitions": 2}}.
    """
    contexts = {
        name: Context(run_id=0, node_id=i, node_config=dict(config), state=RecordDict(), run_config=dict(run_config))
        for i, (name, config) in enumerate(nodes.items(), 1)
    }
    if not isinstance(app, ClientApp):
        return {name: app(context) for name, context in contexts.items()}
    if first_weights is None:
        raise ConfigError(
            "create_clients: a ClientApp does not contain its first weights; pass first_weights, such as "
            "Net().state_dict(), or pass its client_fn in place of the ClientApp."
        )
    from motet.learning.flower_message_client import MessageClient  # loads torch, which a ClientApp does not need

    return {name: MessageClient(app, context, first_weights) for name, context in contexts.items()}
