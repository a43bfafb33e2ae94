"""Choose how a model is packed, by comparing outputs and gradients instead of keeping a list of model families."""

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
from motet.learning.packed.packed_model import PackedModel, PackingMode

# Relative difference of outputs and gradients, by the precision of the frozen weights. A wrong axis causes a far larger
# difference, rounding a far smaller one.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 5e-2}
_CLIENTS = 3


class PackingChoice(NamedTuple):
    mode: PackingMode
    rejections: str  # why each faster mode was rejected


def choose_packing_mode(
    model: Model, module: nn.Module, probe: Mapping[str, Tensor], device: torch.device
) -> PackingChoice:
    """Return the fastest mode that reproduces the plain model's outputs and gradients and can train."""
    rejections: list[str] = []
    initial = model.initial_params.flat
    noise = 0.02 * torch.randn(model.layout.size, generator=Seed(0, ("probe",)).torch()).to(initial.device)
    clients = [Params(model.layout, initial + noise.roll(7 * i)) for i in range(_CLIENTS)]
    modes: tuple[PackingMode, ...] = ("packed_layers", "vmap")
    for mode in modes:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about slow operations; a probe may be slow
                difference = _max_difference(model, module, clients, probe, device, mode)
            if difference < _tolerance(module):
                return PackingChoice(mode, "; ".join(rejections))
            rejections.append(f"{mode}: differs by {difference:.1e}")
        except (
            NotPackable,
            RuntimeError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
            NotImplementedError,
        ) as error:
            rejections.append(f"{mode}: {first_line(error)}")
    return PackingChoice("plain", "; ".join(rejections))


def _tolerance(module: nn.Module) -> float:
    return max(TOLERANCE.get(p.dtype, TOLERANCE[torch.bfloat16]) for p in module.parameters())


def choose_probe_rows(features: Features) -> np.ndarray:
    """Return a few rows, such that no other axis of their batch has length clients * rows."""
    for count in (2, 3, 4, 5, 7):
        rows = np.arange(count) % len(features)
        if all(_CLIENTS * count not in t.shape[1:] for t in features.batch(rows).values()):
            return rows
    return np.arange(2) % len(features)


def _max_difference(
    model: Model,
    module: nn.Module,
    clients: list[Params],
    probe: Mapping[str, Tensor],
    device: torch.device,
    mode: PackingMode,
) -> float:
    """Return the largest relative difference between the packed and the plain model, over outputs and gradients."""
    batch = {k: torch.cat([v.roll(i, 0) for i in range(len(clients))]).to(device) for k, v in probe.items()}
    packed, plain = PackedModel(model, module, device, mode), PackedModel(model, module, device)
    packed.module.eval()
    plain.module.eval()
    packed.load_clients(clients)
    outputs = _outputs_and_grads(packed, batch)
    rows, largest = len(next(iter(probe.values()))), 0.0
    for i, client in enumerate(clients):
        plain.load_clients([client])
        expected = _outputs_and_grads(plain, {k: v.roll(i, 0).to(device) for k, v in probe.items()})
        pairs = [(outputs[k][i * rows : (i + 1) * rows], expected[k]) for k in expected]
        pairs.append((packed.grads[i, : plain.num_trained], plain.grads[0]))
        differences = [float((a - b).norm() / (b.norm() + 1e-12)) for a, b in pairs]
        largest = max([largest, *(float("inf") if math.isnan(d) else d for d in differences)])  # max() may skip a NaN
    packed.module.train()  # training can differ: layer drop draws a random number, which vmap does not support
    with torch.no_grad(), seeded_torch(0, device):
        packed(batch)
    return largest


def _outputs_and_grads(model: PackedModel, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the outputs, and store the gradient of the sum of their squares in `model.grads`."""
    model.begin_step()
    output = model(batch)
    logits = {name: output[name].float() for name in ("logits", "start_logits", "end_logits") if name in output}
    sum(x.square().sum() for x in logits.values()).backward()  # type: ignore[union-attr]
    model.collect_grads()
    return {name: x.detach() for name, x in logits.items()}
