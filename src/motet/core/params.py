"""A model's parameters as one flat vector with names. Algorithms add, send, mask and compare these values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from motet.core.errors import LayoutError
from motet.core.layers import Layers
from motet.core.messages import message


@message
@dataclass(frozen=True)
class Layout:
    """The names, shapes and roles of tensors, in the order in which they are stored in the flat vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    roles: tuple[str, ...] = field(compare=False)

    @cached_property
    def slices(self) -> dict[str, slice]:
        end, slices = 0, {}
        for name, shape in zip(self.names, self.shapes, strict=True):
            slices[name] = slice(end, end := end + math.prod(shape))
        return slices

    @cached_property
    def size(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes)

    @cached_property
    def _selections(self) -> dict[Layers, Layout]:
        return {}

    def select_layers(self, layers: Layers) -> Layout:
        if layers not in self._selections:  # cached because it is needed for every client in every round
            resolved, pairs = layers.resolve(self.roles), zip(self.names, self.roles, strict=True)
            self._selections[layers] = self.select([i for i, pair in enumerate(pairs) if resolved.matches(*pair)])
        return self._selections[layers]

    def select(self, indices: Sequence[int]) -> Layout:
        """Return the layout of the tensors at these indices."""
        if len(indices) == len(self.names):
            return self
        return Layout(
            names=tuple(self.names[i] for i in indices),
            shapes=tuple(self.shapes[i] for i in indices),
            roles=tuple(self.roles[i] for i in indices),
        )

    def views(self, flat: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield each tensor as a view of `flat`. The last axis of `flat` is the vector; leading axes are kept."""
        for name, shape in zip(self.names, self.shapes, strict=True):
            yield name, flat[..., self.slices[name]].view((*flat.shape[:-1], *shape))

    def describe_difference(self, other: Layout) -> str:
        """Say in words how two layouts differ, for an error message."""
        unmatched = sorted(set(self.names) ^ set(other.names))
        if unmatched:
            return f"{len(unmatched)} names, such as {', '.join(unmatched[:3])}"
        if self.names != other.names:
            return "the order of their names"
        pairs = zip(self.names, self.shapes, other.shapes, strict=True)
        mismatches = [f"{name} {list(a)} against {list(b)}" for name, a, b in pairs if a != b]
        return f"shapes, such as {mismatches[0]}"


@message
@dataclass(frozen=True, eq=False)
class Params:
    """Named tensors in one flat vector. Immutable: no method changes it, and callers must not write to its tensors."""

    layout: Layout
    flat: Tensor
    bound = math.inf  # the largest absolute value that a number can have, if it is known; not a field: it is not sent

    def __post_init__(self) -> None:
        if self.flat.dim() != 1 or self.flat.numel() != self.layout.size:
            raise LayoutError(
                f"a tensor of shape {list(self.flat.shape)} cannot hold {self.layout.size} numbers; "
                f"expected a vector of length {self.layout.size}."
            )

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor], roles: Mapping[str, str] | None = None) -> Params:
        """Concatenate named tensors. Tensors that belong to no layer (logits, counts) get the role `head`."""
        layout = Layout(
            names=tuple(tensors),
            shapes=tuple(tuple(tensor.shape) for tensor in tensors.values()),
            roles=tuple(roles[name] if roles else "head" for name in tensors),
        )
        pieces = [tensor.detach().reshape(-1) for tensor in tensors.values()]
        return Params(layout, torch.cat(pieces) if pieces else torch.zeros(0))

    @staticmethod
    def from_scalars(**scalars: float) -> Params:
        """Store named numbers in double precision, so that sums of counts are exact."""
        return Params.from_tensors({name: torch.tensor(value, dtype=torch.float64) for name, value in scalars.items()})

    @staticmethod
    def bundle(**parts: Params) -> Params:
        """Join several values into one, so that one sum carries them all. All get the dtype of the first.

        In a secure sum each number must lie within `secure.range`, so scale counts to numbers around 1.
        """
        values = list(parts.values())
        layout = Layout(
            names=tuple(f"{part}/{name}" for part, value in parts.items() for name in value.layout.names),
            shapes=tuple(shape for value in values for shape in value.layout.shapes),
            roles=tuple(role for value in values for role in value.layout.roles),
        )
        return Params(layout, torch.cat([value.flat.to(values[0].flat) for value in values]))

    def unbundle(self) -> dict[str, Params]:
        """Split a value that `bundle` joined."""
        indices: dict[str, list[int]] = {}
        for i, name in enumerate(self.layout.names):
            indices.setdefault(name.partition("/")[0], []).append(i)
        parts = {}
        for part, selected in indices.items():
            value = self.restrict(self.layout.select(selected))
            names = tuple(name.partition("/")[2] for name in value.layout.names)
            parts[part] = Params(Layout(names, value.layout.shapes, value.layout.roles), value.flat)
        return parts

    def __getitem__(self, name: str) -> Tensor:
        return self.flat[self.layout.slices[name]].view(self.layout.shapes[self.layout.names.index(name)])

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.layout.views(self.flat))

    def check_same_layout(self, other: Params) -> None:
        if self.layout is not other.layout and self.layout != other.layout:
            raise LayoutError(
                f"the parameters differ in {self.layout.describe_difference(other.layout)}; "
                "both must come from the same model and layers."
            )

    def __add__(self, other: Params) -> Params:
        self.check_same_layout(other)
        return Params(self.layout, self.flat + other.to_device_of(self).flat)

    def __sub__(self, other: Params) -> Params:
        self.check_same_layout(other)
        difference = Params(self.layout, self.flat - other.to_device_of(self).flat)
        difference.record_bound(self.bound + other.bound)
        return difference

    def __mul__(self, factor: float) -> Params:
        return Params(self.layout, self.flat * factor)

    __rmul__ = __mul__

    def norm(self) -> float:
        return float(torch.linalg.vector_norm(self.flat, dtype=torch.float64))

    def record_bound(self, bound: float) -> None:
        """Record the largest absolute value that a number can have, so that `is_finite` need not wait for a device."""
        vars(self)["bound"] = bound

    def is_finite(self) -> bool:
        is_bounded = self.bound < math.inf and self.bound < torch.finfo(self.flat.dtype).max / 2
        return is_bounded or is_finite(self.flat)

    def to(self, device: torch.device) -> Params:
        return self if self.flat.device == device else Params(self.layout, self.flat.to(device))

    def to_device_of(self, other: Params) -> Params:
        return self.to(other.flat.device)

    def zeros_like(self) -> Params:
        return Params(self.layout, torch.zeros_like(self.flat))

    def select_layers(self, layers: Layers) -> Params:
        return self.restrict(self.layout.select_layers(layers))

    def exclude_layers(self, layers: Layers) -> Params:
        return self.restrict(self.layout.select_layers(~layers))

    def restrict(self, layout: Layout) -> Params:
        """Return the tensors that are in `layout`, in the order of `layout`."""
        if layout is self.layout or layout == self.layout:
            return self
        pieces = [self.flat[self.layout.slices[name]] for name in layout.names]
        return Params(layout, torch.cat(pieces) if pieces else self.flat[:0])

    def exclude(self, layout: Layout) -> Params:
        """Return the tensors that are not in `layout`."""
        indices = [i for i, name in enumerate(self.layout.names) if name not in layout.slices]
        return self.restrict(self.layout.select(indices))

    def updated(self, *others: Params | None) -> Params:
        """Return a copy with the values of `others`, as in `dict.update`: later values win and None is skipped."""
        updates = [other for other in others if other is not None and other.layout.names]
        for other in (update for update in updates if update.layout is not self.layout):
            self._check_update(other)
        if not updates:
            return self
        if updates[-1].layout.names == self.layout.names:
            return updates[-1].to_device_of(self)
        moved = [self, *(other.to_device_of(self) for other in updates)]
        sources = {name: source for source in moved for name in source.layout.names}
        pieces = [source.flat[source.layout.slices[name]] for name, source in sources.items()]
        return Params(self.layout, torch.cat(pieces))

    def _check_update(self, other: Params) -> None:
        shapes = dict(zip(self.layout.names, self.layout.shapes, strict=True))
        if unknown := [name for name in other.layout.names if name not in shapes]:
            raise LayoutError(
                f"the model has no {', '.join(unknown[:3])}; expected names such as {', '.join(self.layout.names[:3])}."
            )
        for name, shape in zip(other.layout.names, other.layout.shapes, strict=True):
            if shape != shapes[name]:
                raise LayoutError(
                    f"{name} has shape {list(shape)}, but the model's has {list(shapes[name])}; "
                    "both must come from the same model."
                )


def is_finite(tensor: Tensor) -> bool:
    """Check a tensor without allocating a mask: a finite sum has finite terms only. The sum itself may overflow."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    return math.isfinite(float(tensor.sum())) or bool(torch.isfinite(tensor).all())


def common_params(models: Sequence[Params]) -> Params:
    """Return the first model's tensors that all models have with the same name and shape."""
    tensors, *others = [list(zip(m.layout.names, m.layout.shapes, strict=True)) for m in models]
    common = set(tensors).intersection(*others)
    indices = [i for i, tensor in enumerate(tensors) if tensor in common]
    return models[0].restrict(models[0].layout.select(indices))
