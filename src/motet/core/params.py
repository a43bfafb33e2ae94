"""A model's numbers as one flat vector with names: what algorithms add, send, mask and measure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
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

    def only(self, layers: Layers) -> Layout:
        kept = [i for i, (n, p) in enumerate(zip(self.names, self.parts, strict=True)) if layers.chosen(n, p)]
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
            raise LayoutError(f"a vector of shape {shape} cannot hold {self.layout.size} numbers; send one flat vector.")

    @staticmethod
    def of(tensors: Mapping[str, Tensor], parts: Mapping[str, str] | None = None) -> Params:
        """Named tensors as one vector; what is no layer of a model (logits, counts) counts as its head."""
        layout = Layout(
            tuple(tensors),
            tuple(tuple(t.shape) for t in tensors.values()),
            tuple(parts[n] if parts else "head" for n in tensors),
        )
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
        return Params(self.layout, self.flat + other.flat)

    def __sub__(self, other: Params) -> Params:
        self.fits(other)
        return Params(self.layout, self.flat - other.flat)

    def __mul__(self, factor: float) -> Params:
        return Params(self.layout, self.flat * factor)

    __rmul__ = __mul__

    def dot(self, other: Params) -> float:
        self.fits(other)
        return float(self.flat.double() @ other.flat.double())

    def norm(self) -> float:
        return float(torch.linalg.vector_norm(self.flat, dtype=torch.float64))

    def finite(self) -> bool:
        return bool(torch.isfinite(self.flat).all())

    def zeros(self) -> Params:
        return Params(self.layout, torch.zeros_like(self.flat))

    def only(self, layers: Layers) -> Params:
        return self.narrowed(self.layout.only(layers))

    def except_(self, layers: Layers) -> Params:
        return self.narrowed(self.layout.only(~layers))

    def narrowed(self, layout: Layout) -> Params:
        if layout is self.layout:
            return self
        pieces = [self.flat[self.layout.spans[n]] for n in layout.names]
        return Params(layout, torch.cat(pieces) if pieces else self.flat[:0])

    def with_(self, other: Params | None) -> Params:
        """These parameters, with `other`'s values where it has any."""
        if other is None or not other.layout.names:
            return self
        if other.layout.names == self.layout.names:
            self.fits(other)
            return other
        if foreign := [n for n in other.layout.names if n not in self.layout.spans]:
            raise LayoutError(f"the model has no {', '.join(foreign[:3])}; it has {', '.join(self.layout.names[:3])}, ….")
        flat = self.flat.clone()
        for name, span in other.layout.spans.items():
            flat[self.layout.spans[name]] = other.flat[span]
        return Params(self.layout, flat)
