"""A model's numbers as one flat vector with names: what algorithms add, send, mask and measure."""

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
    """Names, shapes and parts in a fixed order: where each tensor lies in the flat vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    parts: tuple[str, ...] = field(compare=False)

    @cached_property
    def spans(self) -> dict[str, slice]:
        end, spans = 0, {}
        for name, shape in zip(self.names, self.shapes, strict=True):
            spans[name] = slice(end, end := end + math.prod(shape))
        return spans

    @cached_property
    def size(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes)

    @cached_property
    def _parts_of(self) -> dict[Layers, Layout]:
        return {}

    def only(self, layers: Layers) -> Layout:
        if layers not in self._parts_of:  # asked for every client of every round
            plain, pairs = layers.within(self.parts), zip(self.names, self.parts, strict=True)
            self._parts_of[layers] = self.picked([i for i, pair in enumerate(pairs) if plain.chosen(*pair)])
        return self._parts_of[layers]

    def picked(self, kept: Sequence[int]) -> Layout:
        """Some of its tensors, by their places."""
        if len(kept) == len(self.names):
            return self
        names, shapes, parts = self.names, self.shapes, self.parts
        return Layout(tuple(names[i] for i in kept), tuple(shapes[i] for i in kept), tuple(parts[i] for i in kept))

    def views(self, flat: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Each tensor as a window on `flat`, whose last axis is the vector; leading axes (clients) stay in front."""
        for name, shape in zip(self.names, self.shapes, strict=True):
            yield name, flat[..., self.spans[name]].view((*flat.shape[:-1], *shape))

    def differs(self, other: Layout) -> str:
        """In words, for an error."""
        odd = sorted(set(self.names) ^ set(other.names))
        if odd:
            return f"{len(odd)} names, such as {', '.join(odd[:3])}"
        pairs = zip(self.names, self.shapes, other.shapes, strict=True)
        wrong = [f"{n} {list(a)} against {list(b)}" for n, a, b in pairs if a != b]
        return f"shapes, such as {wrong[0]}" if wrong else "the order of their names"


@message
@dataclass(frozen=True, eq=False)
class Params:
    """Named tensors over one vector. A value: no method changes it, and none of its tensors may be written to."""

    layout: Layout
    flat: Tensor

    def __post_init__(self) -> None:
        if self.flat.dim() != 1 or self.flat.numel() != self.layout.size:
            shape = list(self.flat.shape)
            raise LayoutError(
                f"a vector of shape {shape} cannot hold {self.layout.size} numbers; send one flat vector."
            )

    @staticmethod
    def of(tensors: Mapping[str, Tensor], parts: Mapping[str, str] | None = None) -> Params:
        """Named tensors as one vector; what is no layer of a model (logits, counts) counts as its head."""
        shapes = tuple(tuple(t.shape) for t in tensors.values())
        layout = Layout(tuple(tensors), shapes, tuple(parts[n] if parts else "head" for n in tensors))
        pieces = [t.detach().reshape(-1) for t in tensors.values()]
        return Params(layout, torch.cat(pieces) if pieces else torch.zeros(0))

    @staticmethod
    def counts(**numbers: float) -> Params:
        """Named numbers in double precision, so that counts add up exactly."""
        return Params.of({name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()})

    def __getitem__(self, name: str) -> Tensor:
        return self.flat[self.layout.spans[name]].view(self.layout.shapes[self.layout.names.index(name)])

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.layout.views(self.flat))

    def fits(self, other: Params) -> None:
        if self.layout is not other.layout and self.layout != other.layout:
            raise LayoutError(
                f"parameters differ in {self.layout.differs(other.layout)}; both must come from the same model and layers."
            )

    def __add__(self, other: Params) -> Params:
        self.fits(other)
        return Params(self.layout, self.flat + other.beside(self).flat)

    def __sub__(self, other: Params) -> Params:
        self.fits(other)
        return Params(self.layout, self.flat - other.beside(self).flat)

    def __mul__(self, factor: float) -> Params:
        return Params(self.layout, self.flat * factor)

    __rmul__ = __mul__

    def dot(self, other: Params) -> float:
        self.fits(other)
        return float(self.flat.double() @ other.beside(self).flat.double())

    def norm(self) -> float:
        return float(torch.linalg.vector_norm(self.flat, dtype=torch.float64))

    def finite(self) -> bool:
        return bool(torch.isfinite(self.flat).all())

    def beside(self, other: Params) -> Params:
        """The same parameters on the device where `other` lives."""
        here, there = self.flat.device, other.flat.device
        return self if here == there else Params(self.layout, self.flat.to(there))

    def zeros(self) -> Params:
        return Params(self.layout, torch.zeros_like(self.flat))

    def only(self, layers: Layers) -> Params:
        return self.narrowed(self.layout.only(layers))

    def except_(self, layers: Layers) -> Params:
        return self.narrowed(self.layout.only(~layers))

    def without(self, layout: Layout) -> Params:
        """What is not in `layout`."""
        kept = [i for i, name in enumerate(self.layout.names) if name not in layout.spans]
        return self.narrowed(self.layout.picked(kept))

    def narrowed(self, layout: Layout) -> Params:
        if layout is self.layout or layout == self.layout:
            return self
        pieces = [self.flat[self.layout.spans[n]] for n in layout.names]
        return Params(layout, torch.cat(pieces) if pieces else self.flat[:0])

    def with_(self, *others: Params | None) -> Params:
        """These parameters, with the others' values where they have any; the last has the last word. All is copied once."""
        given = [other for other in others if other is not None and other.layout.names]
        for other in given:
            if foreign := [n for n in other.layout.names if n not in self.layout.spans]:
                raise LayoutError(
                    f"the model has no {', '.join(foreign[:3])}; it has {', '.join(self.layout.names[:3])}, …."
                )
            shapes = dict(zip(self.layout.names, self.layout.shapes, strict=True))
            if odd := [
                n for n, shape in zip(other.layout.names, other.layout.shapes, strict=True) if shapes[n] != shape
            ]:
                raise LayoutError(f"{odd[0]} has another shape than in the model; both must come from the same model.")
        if not given:
            return self
        if given[-1].layout.names == self.layout.names:
            return given[-1].beside(self)
        source = dict.fromkeys(self.layout.names, self)
        for other in given:
            source |= dict.fromkeys(other.layout.names, other.beside(self))
        return Params(self.layout, torch.cat([found.flat[found.layout.spans[n]] for n, found in source.items()]))


def common_params(models: Sequence[Params]) -> Params:
    """Of the first model, what all have by the same name and in the same shape: all that an average over them can be of."""
    shapes = [dict(zip(m.layout.names, m.layout.shapes, strict=True)) for m in models]
    layout = models[0].layout
    kept = [i for i, name in enumerate(layout.names) if all(s.get(name) == layout.shapes[i] for s in shapes)]
    return models[0].narrowed(layout.picked(kept))
