"""How large the messages of a run may be: a few times its largest model."""

from __future__ import annotations

import math

from motet.experiment.build.federation import Federation
from motet.experiment.recipe.run_config import RunConfig
from motet.transport.message_limits import MessageLimits, reply_limits, request_limits

GIB = 2**30
MODELS_PER_REPLY, MODELS_PER_REQUEST = 8, 16
_LIGHT_SECAGG_OPTIONS = {"colluders": 0.5, "threshold": 0.7}


def limit_replies(config: RunConfig, federation: Federation, limit_gib: float | None) -> MessageLimits:
    """Return the limits of what a client sends. `limit_gib` (transport.limit) replaces the limit of the whole message."""
    message_bytes = int(limit_gib * GIB) if limit_gib else None
    return reply_limits(_largest_model(federation), MODELS_PER_REPLY + _models_of_shares(config), message_bytes)


def limit_requests(config: RunConfig, federation: Federation) -> MessageLimits:
    """Return the limits of what the server sends to a client that has joined."""
    return request_limits(_largest_model(federation), MODELS_PER_REQUEST + _models_of_shares(config))


def _largest_model(federation: Federation) -> int:
    return max(group.model.layout.size for group in (federation.server, *federation.groups))


def _models_of_shares(config: RunConfig) -> int:
    """Return the size of one client's shares, in models. LightSecAgg sends every client a part of each mask.

    A mask is split into at least (threshold - colluders) * clients pieces, rounded down, or one.
    """
    if config.secure.type != "light_secagg":
        return 0
    options = {**_LIGHT_SECAGG_OPTIONS, **config.secure.options}
    return math.ceil(2 / max(float(options["threshold"]) - float(options["colluders"]), 1e-3))
