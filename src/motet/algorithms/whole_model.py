"""A check for algorithms that need the same model at every client."""

from __future__ import annotations

from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.learning.context import Context


def require_whole_model(algorithm: str, ctx: Context, params: Params) -> None:
    """Raise an error if the client's model has layers that not all clients have."""
    if private := ctx.initial_params.exclude(params.layout).layout.names:
        raise ConfigError(
            f"{algorithm} needs the same model at every client, and {ctx.client} has layers that others lack, such as "
            f"{private[0]}; give all groups the same task and model, or use fedavg."
        )
