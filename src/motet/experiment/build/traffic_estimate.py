"""What a round costs in bytes: as it is, and as Table VI of FedSplitBERT counts it.

What travels is a model's layers or, in distillation, opinions: such algorithms say themselves what their letters are like. The
table counts one direction though its caption says both, leaves out embeddings, and charges FedAdam two more copies of the
layers for its moments, which never leave the server. So its numbers can be compared with, they stand beside the true ones.
"""

from __future__ import annotations

from typing import NamedTuple

from motet.algorithms.fedavg import FedAvg
from motet.codecs.chain import Channel
from motet.core.layers import Layers
from motet.core.params import Layout, Params
from motet.core.weighted import Weighted
from motet.experiment.build.run_plan import RunPlan
from motet.optim import Adam, Yogi
from motet.wire import measure_size


class RoundCost(NamedTuple):
    """Bytes of tensors in one round of all clients: `up` and `down` travel, `table_six` is what the paper would print."""

    up: int
    down: int
    table_six: int


class Moved(NamedTuple):
    """Bytes of tensors for one client in one round, after the codecs."""

    up: int
    down: int


def moved_in_a_round(plan: RunPlan) -> Moved:
    """An estimate before anything has travelled: of letters as long as the true ones will be."""
    federation, channel = plan.federation, plan.channel
    dummy_messages = getattr(plan.algorithm, "dummy_messages", None)
    if dummy_messages is not None:
        down, up = dummy_messages(federation.server_context(0))
    else:
        view = plan.algorithm.view(plan.algorithm.init(federation.start()), federation.clients[0])
        down, up = [view], [Weighted(view, 1.0) if isinstance(view, Params) else view]
    return Moved(
        *(
            sum(measure_size(way.encode(m)).payload for m in sent)
            for way, sent in ((channel.up, up), (channel.down, down))
        )
    )


def round_cost(algorithm: FedAvg, layout: Layout, clients: int, channel: Channel = Channel()) -> RoundCost:
    shared = layout.select_layers(algorithm.shared)
    counted, copies = shared.select_layers(~Layers.parse("embeddings")), clients
    if isinstance(algorithm.server, Adam | Yogi):
        counted, copies = counted.select_layers(Layers.parse("layers")), clients + 2
    up, down, said = channel.up.size(shared), channel.down.size(shared), channel.up.size(counted)
    return RoundCost(clients * up, clients * down, copies * said)
