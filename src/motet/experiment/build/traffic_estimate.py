"""Bytes per round: estimated before a run, and counted as in Table VI of FedSplitBERT.

Clients exchange layers of a model or, in distillation, logits; such algorithms describe their messages themselves.

The table differs from what is sent. It counts one direction, though its caption says both. It leaves out embeddings.
For FedAdam it adds two copies of the layers, for an optimizer state that never leaves the server. We report its numbers
next to the true ones so that they can be compared with the paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from motet.algorithms.fedavg import FedAvg
from motet.codecs.chain import Channel, CodecChain
from motet.core.layers import Layers
from motet.core.params import Layout, Params
from motet.core.weighted import Weighted
from motet.experiment.build.run_plan import RunPlan
from motet.optim import Adam, Yogi
from motet.wire import measure_size


class RoundBytes(NamedTuple):
    """Bytes of tensors in one round, for all clients. `table_six` is the paper's way of counting."""

    up: int
    down: int
    table_six: int


class ClientBytes(NamedTuple):
    """Bytes of tensors in one round, for one client, after the codecs."""

    up: int
    down: int


def estimate_client_bytes(plan: RunPlan) -> ClientBytes:
    """Estimate a client's traffic from dummy messages of the right size."""
    algorithm, federation, channel = plan.algorithm, plan.federation, plan.components.channel
    dummy_messages = getattr(algorithm, "dummy_messages", None)
    if dummy_messages is not None:
        down, up = dummy_messages(federation.server_context(0))
    else:
        view = algorithm.view(plan.initial_state, federation.clients[0])
        down, up = [view], [Weighted(view, 1.0) if isinstance(view, Params) else view]
    return ClientBytes(up=_payload_bytes(channel.up, up), down=_payload_bytes(channel.down, down))


def _payload_bytes(codecs: CodecChain, messages: Iterable[Any]) -> int:
    return sum(measure_size(codecs.encode(message)).payload for message in messages)


def round_bytes(algorithm: FedAvg, layout: Layout, clients: int, channel: Channel = Channel()) -> RoundBytes:
    """Return the bytes of a round of an algorithm of FedAvg's family, in which every round is the same."""
    shared = layout.select_layers(algorithm.shared)
    counted, copies = shared.select_layers(~Layers.parse("embeddings")), clients
    if isinstance(algorithm.server, Adam | Yogi):
        counted, copies = counted.select_layers(Layers.parse("layers")), clients + 2
    return RoundBytes(
        up=clients * channel.up.encoded_size(shared),
        down=clients * channel.down.encoded_size(shared),
        table_six=copies * channel.up.encoded_size(counted),
    )
