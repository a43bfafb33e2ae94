"""Short ways to plan a run in tests."""

from __future__ import annotations

from typing import Any

from motet.codecs.chain import Channel
from motet.core.program import Algorithm
from motet.experiment.build.run_components import RunComponents
from motet.experiment.build.run_plan import AnyFederation, RunPlan


def make_plan(
    federation: AnyFederation,
    algorithm: Algorithm,
    rounds: int = 1,
    *,
    channel: Channel = Channel(),
    secure: Any = None,
    privacy: Any = None,
    **options: Any,
) -> RunPlan:
    components = RunComponents(algorithm=algorithm, channel=channel, secure=secure, privacy=privacy)
    return RunPlan(federation=federation, components=components, rounds=rounds, **options)
