"""What a client keeps from round to round of a stage: its private layers, and an optimiser that is not begun anew."""

from __future__ import annotations

from dataclasses import dataclass

from motet.core.layers import Layers
from motet.core.messages import message
from motet.core.params import Params
from motet.learning.jobs import Momenta


@message
@dataclass(frozen=True, eq=False)
class Own:
    params: Params | None
    momenta: Momenta | None


def moments_taken(own: Own | None, model: Params) -> Momenta | None:
    """The moments for the whole model; zero where none were kept."""
    if own is None or own.momenta is None:
        return None
    return Momenta(own.momenta.steps, tuple(model.zeros().with_(m) for m in own.momenta.moments))


def moments_kept(own: Own | None, now: Momenta | None, model: Params, trained: Layers, kept: Layers) -> Momenta | None:
    """The moments of what was trained, and of the rest what they were before; nothing of layers that are not kept."""
    if now is None:
        return None
    before = moments_taken(own, model)
    old = before.moments if before is not None else tuple(model.zeros() for _ in now.moments)
    whole = tuple(o.with_(n.only(trained)) for o, n in zip(old, now.moments, strict=True))
    return Momenta(now.steps, tuple(m.only(kept) for m in whole))
