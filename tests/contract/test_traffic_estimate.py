"""The traffic that `motet check` estimates is the traffic of a run: in every round, for every algorithm and codec."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.entries import SOLVER, make_algorithm
from tests.runs import advance, start_run

from motet.algorithms import ALGORITHMS
from motet.codecs import Channel, CodecChain, float16, int8, top_k
from motet.experiment.build.federation import Federation
from motet.experiment.build.traffic_estimate import TrafficEstimate, estimate_traffic

CHANNELS = {
    "plain": Channel(),
    "float16": Channel(up=CodecChain((float16(),)), down=CodecChain((float16(),))),
    "top_k": Channel(up=CodecChain((top_k(0.1), int8())), down=CodecChain((int8(),))),
}
ROUNDS = 4
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ALGORITHMS},
    "fedsplit with local embeddings": ("fedsplit", {"embeddings": "local"}),
    "adafd with sums": ("adafd", {"exchange": "sum"}),
    "adafd with truncated logits": ("adafd", {"top_classes": 1}),
    "atc with weights of clients": ("atc", {"weighting": "client", "half": False}),
    "atc without contrast": ("atc", {"second_stage": "neighbors"}),
    "atc with one stage": ("atc", {"assign": 0}),
}


@pytest.mark.parametrize("codec", CHANNELS)
@pytest.mark.parametrize(("name", "options"), VARIANTS.values(), ids=VARIANTS)
def test_the_estimate_is_exact_in_every_round(
    name: str, options: dict[str, Any], codec: str, federation: Federation
) -> None:
    algorithm = make_algorithm(name, solver=replace(SOLVER, steps=1), **options)  # the size of a message is the same
    run = start_run(federation, algorithm, ROUNDS, channel=CHANNELS[codec])
    up = down = 0
    for index in range(ROUNDS):
        estimate = estimate_traffic(run.plan, index)
        traffic = advance(run).engine.mailbox.traffic
        assert estimate == TrafficEstimate(up=traffic.payload_up - up, down=traffic.payload_down - down), index
        up, down = traffic.payload_up, traffic.payload_down
    assert up + down > 0 or name in ("centralized", "isolated")
