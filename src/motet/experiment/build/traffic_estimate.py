"""Bytes per round: estimated before a run, and counted as in Table VI of FedSplitBERT.

Every algorithm describes its messages itself (`dummy_exchanges`).

The table differs from what is sent. It counts one direction, though its caption says both. It leaves out embeddings.
For FedAdam it adds two copies of the layers, for an optimizer state that never leaves the server. We report its numbers
next to the true ones so that they can be compared with the paper.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from motet.algorithms.fedavg import FedAvg
from motet.codecs.chain import Channel, CodecChain
from motet.core.layers import Layers
from motet.core.params import Layout
from motet.core.program import Round
from motet.experiment.build.run_plan import RunPlan
from motet.optim import Adam, Yogi
from motet.wire import measure_payload


class RoundBytes(NamedTuple):
    """Bytes of tensors in one round, for all clients. `table_six` is the paper's way of counting."""

    up: int
    down: int
    table_six: int


class TrafficEstimate(NamedTuple):
    """Bytes of tensors in one round, for all clients, after the codecs."""

    up: int
    down: int


def estimate_traffic(plan: RunPlan, index: int = 0) -> TrafficEstimate:
    """Estimate the traffic of a round from dummy messages of the right size."""
    federation, channel = plan.federation, plan.components.channel
    rnd = Round(
        index=index,
        rounds=plan.rounds,
        cohort=tuple(federation.clients[i] for i in range(plan.cohort_size)),
        seed=federation.seed.derive("round", index),
        server=federation.server_context(index),
    )
    exchanges = plan.algorithm.dummy_exchanges(plan.initial_state, rnd)
    return TrafficEstimate(
        up=sum(exchange.clients * _payload_bytes(channel.up, exchange.reply) for exchange in exchanges),
        down=sum(exchange.clients * _payload_bytes(channel.down, exchange.payload) for exchange in exchanges),
    )


def _payload_bytes(codecs: CodecChain, message: Any) -> int:
    return measure_payload(codecs.encode(message))


def round_bytes(algorithm: FedAvg, layout: Layout, clients: int, channel: Channel = Channel()) -> RoundBytes:
    """Return the bytes of a round of an algorithm of FedAvg's family, in which every round is the same."""
    shared = layout.select_layers(algorithm.shared).select_layers(~algorithm.local)
    counted, copies = shared.select_layers(~Layers.parse("embeddings")), clients
    if isinstance(algorithm.server, Adam | Yogi):
        counted, copies = counted.select_layers(Layers.parse("layers")), clients + 2
    return RoundBytes(
        up=clients * channel.up.encoded_size(shared),
        down=clients * channel.down.encoded_size(shared),
        table_six=copies * channel.up.encoded_size(counted),
    )
