"""Which way a model can be packed: decided by trying, not by a list of names."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from motet.core.errors import first_line
from motet.core.params import Params
from motet.core.rng import Seed, seeded_torch
from motet.learning.data.features import Features
from motet.learning.modules.model import Model
from motet.learning.packed.packed_layers import NotPackable
from motet.learning.packed.packed_model import PackedModel, Way

TOLERANCE = 1e-3  # relative, of outputs and gradients in float32; a wrong axis is off by far more, rounding by far less
_CLIENTS = 3


class PackingChoice(NamedTuple):
    way: Way
    why: str  # each faster way was refused; empty if none was


def choose_packing_mode(
    model: Model, module: nn.Module, probe: Mapping[str, Tensor], device: torch.device
) -> PackingChoice:
    """The fastest way that gives the outputs and the gradients of the plain model, and trains without an error."""
    reasons: list[str] = []
    noise = 0.02 * torch.randn(model.layout.size, generator=Seed(0, ("probe",)).torch()).to(
        model.initial_params.flat.device
    )
    clients = [Params(model.layout, model.initial_params.flat + noise.roll(7 * i)) for i in range(_CLIENTS)]
    ways: tuple[Way, ...] = ("twins", "vmap")
    for way in ways:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about what is slow here; it is the way that counts
                gap = _gap(model, module, clients, probe, device, way)
            if gap < TOLERANCE:
                return PackingChoice(way, "; ".join(reasons))
            reasons.append(f"{way}: differs by {gap:.1e}")
        except (
            NotPackable,
            RuntimeError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
            NotImplementedError,
        ) as why:
            reasons.append(f"{way}: {first_line(why)}")
    return PackingChoice("plain", "; ".join(reasons))


def choose_probe_rows(features: Features) -> np.ndarray:
    """A few rows, so many that no other axis of the batch could be taken for clients × rows."""
    for rows in (2, 3, 4, 5, 7):
        some = np.arange(rows) % len(features)
        if all(_CLIENTS * rows not in t.shape[1:] for t in features.batch(some).values()):
            return some
    return np.arange(2) % len(features)


def _gap(
    model: Model, module: nn.Module, clients: list[Params], probe: Mapping[str, Tensor], device: torch.device, way: Way
) -> float:
    beside = {k: torch.cat([v.roll(i, 0) for i in range(len(clients))]).to(device) for k, v in probe.items()}
    pack, solo = PackedModel(model, module, device, way), PackedModel(model, module, device)
    pack.module.eval()
    solo.module.eval()
    pack.seat(clients)
    out = _squares(pack, beside)
    rows, worst = len(next(iter(probe.values()))), 0.0
    for i, client in enumerate(clients):
        solo.seat([client])
        want = _squares(solo, {k: v.roll(i, 0).to(device) for k, v in probe.items()})
        pairs = [(out[k][i * rows : (i + 1) * rows], want[k]) for k in want] + [
            (pack.grad[i, : solo.used], solo.grad[0])
        ]
        gaps = [float((a - b).norm() / (b.norm() + 1e-12)) for a, b in pairs]
        worst = max([worst, *(float("inf") if math.isnan(g) else g for g in gaps)])  # max() would lose a NaN
    pack.module.train()  # training has code of its own: a layer drop throws a coin, which vmap cannot
    with torch.no_grad(), seeded_torch(0, device):
        pack(beside)
    return worst


def _squares(pack: PackedModel, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The outputs, and in `pack.grad` the gradient of the sum of their squares."""
    pack.refresh()
    output = pack(batch)
    found = {k: output[k].float() for k in ("logits", "start_logits", "end_logits") if k in output}
    sum(v.square().sum() for v in found.values()).backward()  # type: ignore[union-attr]
    pack.collect()
    return {k: v.detach() for k, v in found.items()}
