"""What a round costs in bytes: as it is, and as Table VI of FedSplitBERT counts it.

The table counts one direction though its caption says both, leaves out embeddings, and charges FedAdam two more copies of the
layers for its moments, which never leave the server. So its numbers can be compared with, they stand beside the true ones.
"""

from __future__ import annotations

from typing import NamedTuple

from motet.algorithms.fedavg import FedAvg
from motet.codecs.channel import Channel
from motet.core.layers import Layers
from motet.core.params import Layout
from motet.optim import Adam, Yogi


class RoundCost(NamedTuple):
    """Bytes of tensors in one round of all clients: `up` and `down` travel, `table_six` is what the paper would print."""

    up: int
    down: int
    table_six: int


def round_cost(algorithm: FedAvg, layout: Layout, clients: int, channel: Channel = Channel()) -> RoundCost:
    shared = layout.only(algorithm.shared)
    counted, copies = shared.only(~Layers.of("embeddings")), clients
    if isinstance(algorithm.server, Adam | Yogi):
        counted, copies = counted.only(Layers.of("layers")), clients + 2
    up, down, said = channel.up.size(shared), channel.down.size(shared), channel.up.size(counted)
    return RoundCost(clients * up, clients * down, copies * said)
