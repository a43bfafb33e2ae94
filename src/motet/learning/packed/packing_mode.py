"""Choose how a model is packed, by comparing outputs and gradients instead of keeping a list of model families."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from motet.core.errors import first_line
from motet.core.params import Params
from motet.core.rng import Seed, seeded_torch
from motet.learning.data.features import Features
from motet.learning.modules.model import Model, copy_sharing_parameters
from motet.learning.packed.packed_layers import NotPackable
from motet.learning.packed.packed_model import PackedModel, PackingMode
from motet.learning.packed.parallel_compilation import compile_kernels_of

# Relative difference of outputs and gradients, by the precision of the frozen weights. A wrong axis causes a far larger
# difference, rounding a far smaller one.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 5e-2}
# Rounding errors of bfloat16 add up over the layers of a deep model, so two correct computations can differ by more than
# the tolerance. Then both are compared with float32: packing is accepted if its error is at most this many times the
# error of the plain model. Beyond `MAX_ROUNDING_ERROR` of the plain model, this says nothing.
ROUNDING_FACTOR, MAX_ROUNDING_ERROR = 2.0, 0.3
# The gradient of an activation with a kink, such as ReLU, jumps where rounding changes the sign of its input. A T5 has
# millions of them, and its gradients in float32 and float64 differ by 1.5e-3 if one jumps. So gradients that differ by
# more than the tolerance and less than this, with equal outputs, are compared in float64.
MAX_JUMP = 5e-2
_CLIENTS = 3
_NOISE_PERIOD = 100_003  # a prime, so that rows of a matrix differ; to draw 22 M numbers takes 0.2 s
Outputs = dict[str, Tensor]  # by name; gradients under ""


class PackingChoice(NamedTuple):
    mode: PackingMode
    rejections: str  # why each faster mode was rejected


def choose_packing_mode(
    model: Model, module: nn.Module, batch: Mapping[str, Tensor], device: torch.device
) -> PackingChoice:
    """Return the fastest mode that reproduces the plain model's outputs and gradients and can train."""
    rejections: list[str] = []
    initial = model.initial_params.flat
    noise = 0.02 * torch.randn(_NOISE_PERIOD, generator=Seed(0, ("probe",)).torch()).to(initial.device)
    noise = noise.repeat(-(-len(initial) // _NOISE_PERIOD))[: len(initial)]
    clients = [Params(model.layout, initial + noise.roll(7 * i)) for i in range(_CLIENTS)]
    probe = _Probe(model, module, clients, batch, device)
    modes: tuple[PackingMode, ...] = ("packed_layers", "vmap")
    for mode in modes:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about slow operations; a probe may be slow
                rejection = _compare(probe, mode)
            if not rejection:
                return PackingChoice(mode, "; ".join(rejections))
            rejections.append(f"{mode}: {rejection}")
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


@dataclass(frozen=True)
class _Probe:
    """The input of a comparison of packed and plain models: a module, a few clients' parameters, and a batch."""

    model: Model
    module: nn.Module
    clients: list[Params]
    batch: Mapping[str, Tensor]
    device: torch.device
    dtype: torch.dtype = torch.float32

    def build(self, mode: PackingMode) -> PackedModel:
        return PackedModel(self.model, self.module, self.device, mode, dtype=self.dtype)

    def in_float64(self) -> _Probe:
        trained = {id(p) for p in self.model.trainable.values()}
        module = _with_dtype(self.module, torch.float64, (torch.float32,), keep=trained)
        batch = {name: x.double() if x.is_floating_point() else x for name, x in self.batch.items()}
        return replace(self, module=module, batch=batch, dtype=torch.float64)

    def without_half_precision(self) -> _Probe:
        return replace(self, module=_with_dtype(self.module, torch.float32, (torch.bfloat16, torch.float16)))

    def packed_batch(self) -> dict[str, Tensor]:
        """Return one batch with the rows of all clients. Each client gets them in another order."""
        shifts = range(len(self.clients))
        return {k: torch.cat([v.roll(i, 0) for i in shifts]).to(self.device) for k, v in self.batch.items()}

    def run_packed(self, packed: PackedModel) -> list[Outputs]:
        packed.module.eval()
        packed.load_clients(self.clients)
        outputs, rows = _outputs_and_grads(packed, self.packed_batch()), len(next(iter(self.batch.values())))
        by_client = [{k: x[i * rows : (i + 1) * rows] for k, x in outputs.items()} for i in range(len(self.clients))]
        return [{**out, "": packed.grads[i, : packed.num_trained]} for i, out in enumerate(by_client)]

    def run_one_by_one(self) -> list[Outputs]:
        plain = self.build("plain")
        plain.module.eval()
        results = []
        for i, client in enumerate(self.clients):
            plain.load_clients([client])
            outputs = _outputs_and_grads(plain, {k: v.roll(i, 0).to(self.device) for k, v in self.batch.items()})
            results.append({**outputs, "": plain.grads[0].clone()})
        return results


def _compare(probe: _Probe, mode: PackingMode) -> str:
    """Return how the packed model's outputs or gradients differ from the plain model's; "" if they agree."""
    packed_model = probe.build(mode)
    if mode == "packed_layers":
        compile_kernels_of(lambda: probe.run_packed(packed_model), probe.device)
    packed, plain = probe.run_packed(packed_model), probe.run_one_by_one()
    difference = max(_relative_differences(packed, plain))
    rejection = "" if difference < _tolerance(probe.module) else f"differs by {difference:.1e}"
    if rejection and not _has_half_precision(probe.module) and _only_gradients_jump(packed, plain):
        double = probe.in_float64()
        in_float64 = max(_relative_differences(double.run_packed(double.build(mode)), double.run_one_by_one()))
        rejection = "" if in_float64 < TOLERANCE[torch.float32] else f"{rejection}, and in float64 by {in_float64:.1e}"
    elif rejection and math.isfinite(difference) and _has_half_precision(probe.module):
        reference = probe.without_half_precision().run_one_by_one()
        packed_errors, errors = _mean_errors(packed, reference), _mean_errors(plain, reference)
        distances = f", and from float32 by {max(packed_errors):.1e} (the plain model: {max(errors):.1e})"
        rejection = "" if _is_rounding(packed_errors, errors) else rejection + distances
    packed_model.module.train()  # training can differ: layer drop draws a random number, which vmap does not support
    with torch.no_grad(), seeded_torch(0, probe.device):
        packed_model(probe.packed_batch())
    return rejection


def _relative_differences(actual: list[Outputs], expected: list[Outputs]) -> list[float]:
    """Return the relative difference of every output and gradient of every client; infinity for a NaN."""
    pairs = [(a[k], e[k]) for a, e in zip(actual, expected, strict=True) for k in e]
    differences = [float((a - b).norm() / (b.norm() + 1e-12)) for a, b in pairs]
    return [math.inf if math.isnan(difference) else difference for difference in differences]


def _mean_errors(actual: list[Outputs], expected: list[Outputs]) -> list[float]:
    """Return the relative error of every output and of the gradients, as a root mean square over clients."""
    errors = np.array(_relative_differences(actual, expected)).reshape(len(expected), -1)
    return [float(error) for error in np.sqrt(np.square(errors).mean(0))]


def _is_rounding(packed_errors: list[float], errors: list[float]) -> bool:
    """True if a packed model is about as close to float32 as the plain model is."""
    pairs = zip(packed_errors, errors, strict=True)
    return max(errors) < MAX_ROUNDING_ERROR and all(packed <= ROUNDING_FACTOR * plain for packed, plain in pairs)


def _has_half_precision(module: nn.Module) -> bool:
    return any(p.dtype in (torch.bfloat16, torch.float16) for p in module.parameters())


def _only_gradients_jump(packed: list[Outputs], plain: list[Outputs]) -> bool:
    """True if the outputs agree, and the gradients differ by so little that kinks of activations may be the cause."""
    outputs, grads = (
        [[{k: x for k, x in out.items() if bool(k) == is_output} for out in run] for run in (packed, plain)]
        for is_output in (True, False)
    )
    agree = max(_relative_differences(*outputs)) < TOLERANCE[torch.float32]
    return agree and max(_relative_differences(*grads)) < MAX_JUMP


def _with_dtype(
    module: nn.Module, dtype: torch.dtype, replaced: tuple[torch.dtype, ...], keep: Collection[int] = ()
) -> nn.Module:
    """Return a copy with tensors of the replaced types in another one. Other parameters, and those to keep, are shared."""
    duplicate = copy_sharing_parameters(module)
    copies: dict[int, nn.Parameter] = {}  # tied weights stay tied
    for submodule in duplicate.modules():
        for name, parameter in submodule._parameters.items():
            if parameter is not None and parameter.dtype in replaced and id(parameter) not in keep:
                cast = nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
                submodule._parameters[name] = copies.setdefault(id(parameter), cast)
        for name, buffer in submodule._buffers.items():
            if buffer is not None and buffer.dtype in replaced:
                submodule._buffers[name] = buffer.to(dtype)
    return duplicate


def _outputs_and_grads(model: PackedModel, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the outputs, and store the gradient of the sum of their squares in `model.grads`."""
    model.begin_step()
    output = model(batch)
    names = [name for name in ("logits", "start_logits", "end_logits") if name in output]
    logits = {name: output[name].to(model.grads.dtype) for name in names}
    sum(x.square().sum() for x in logits.values()).backward()  # type: ignore[union-attr]
    model.collect_grads()
    return {name: x.detach() for name, x in logits.items()}
