"""Chains of codecs, applied to the parameters inside a message, up and down."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from motet.codecs.row_layout import RowLayout
from motet.core.errors import ConfigError, WireError
from motet.core.messages import MESSAGES, message
from motet.core.params import Layout, Params
from motet.core.rng import Seed


@message
@dataclass(frozen=True, eq=False)
class EncodedParams:
    """Parameters on their way: the layout they had, what the codecs made of them, and what each codec put beside that."""

    stands_for: ClassVar[type] = Params

    layout: Layout
    body: Tensor
    beside: tuple[Tensor | None, ...]


class EncodedSize(NamedTuple):
    """What a codec makes travel: of the numbers themselves, and beside them (scales, places)."""

    body: int
    beside: int


class Codec(Protocol):
    """`encode` on the sender's side, `decode` on the reader's; `size` travels. Additive: decoding a sum gives the sum.

    `error` bounds the Euclidean distance between what goes in and what comes out. A codec that `narrows` numbers stands last in
    its chain; one `for_updates` takes away so much that weights could not bear it.
    """

    @property
    def name(self) -> str: ...
    @property
    def additive(self) -> bool: ...
    @property
    def narrows(self) -> bool: ...
    @property
    def for_updates(self) -> bool: ...
    def encode(self, body: Tensor, rows: RowLayout, seed: Seed) -> tuple[Tensor, Tensor | None]: ...
    def decode(self, body: Tensor, beside: Tensor | None, rows: RowLayout) -> Tensor: ...
    def after(self, rows: RowLayout) -> RowLayout:
        """How what is handed on falls into rows."""

    def size(self, rows: RowLayout) -> EncodedSize: ...
    def error(self, body: Tensor, rows: RowLayout) -> float: ...


@dataclass(frozen=True)
class CodecChain:
    """Codecs in order: forwards where a message is sent, backwards where it is read. They see nothing but parameters."""

    codecs: tuple[Codec, ...] = ()

    def __post_init__(self) -> None:
        if early := [c.name for c in self.codecs[:-1] if c.narrows]:
            raise ConfigError(
                f"codec: {early[0]} must be the last of its chain, since what follows needs plain numbers."
            )

    @property
    def for_updates(self) -> tuple[str, ...]:
        """The codecs that weights could not bear."""
        return tuple(codec.name for codec in self.codecs if codec.for_updates)

    @property
    def feeds_back(self) -> bool:
        """Whether what is left out of a reply is to be added to the next one."""
        return any(getattr(codec, "feedback", False) for codec in self.codecs)

    def encode(self, value: Any, seed: Seed = Seed(0)) -> Any:
        return self.encode_owing(value, (), seed, owes=False)[0] if self.codecs else value

    def decode(self, value: Any) -> Any:
        return _mapped(value, self._decoded)  # without codecs too: what came coded must then be refused

    def encode_owing(
        self, value: Any, owed: tuple[Params, ...], seed: Seed, owes: bool = True
    ) -> tuple[Any, tuple[Params, ...]]:
        """The coded message with what was owed added to it, and what is owed now: error feedback."""
        debts, left = iter(owed), list[Params]()
        seeds = (seed.derive(number) for number in range(2**31))

        def change(part: Any) -> Any:
            if not isinstance(part, Params) or part.flat.dtype != torch.float32 or not part.layout.size:
                return part  # counts are in double precision: left alone
            debt = next(debts, None)
            whole = part if debt is None else part + debt
            coded = self._encoded(whole, next(seeds))
            if owes:
                left.append(whole - self._decoded(coded))
            return coded

        return _mapped(value, change), tuple(left)

    def size(self, layout: Layout) -> int:
        """Bytes of tensors that parameters of this layout become."""
        body, beside = 4 * layout.size, 0
        for codec, rows in self._stages(layout):
            body, more = codec.size(rows)
            beside += more
        return body + beside

    def error(self, params: Params, seed: Seed = Seed(0)) -> float:
        """A bound on the Euclidean distance between these parameters and what the reader gets: codecs' errors add up."""
        body, bound = params.flat, 0.0
        for number, (codec, rows) in enumerate(self._stages(params.layout)):
            bound += codec.error(body, rows)
            body, _ = codec.encode(body, rows, seed.derive(0, number))
        return bound

    def _stages(self, layout: Layout) -> Iterator[tuple[Codec, RowLayout]]:
        rows = RowLayout.of(layout)
        for codec in self.codecs:
            yield codec, rows
            rows = codec.after(rows)

    def _encoded(self, value: Params, seed: Seed) -> EncodedParams:
        body, beside = value.flat, list[Tensor | None]()
        for number, (codec, rows) in enumerate(self._stages(value.layout)):
            body, more = codec.encode(body, rows, seed.derive(number))
            beside.append(more)
        return EncodedParams(value.layout, body, tuple(beside))

    def _decoded(self, value: Any) -> Any:
        if not isinstance(value, EncodedParams):
            return value
        if len(value.beside) != len(self.codecs):
            raise WireError(
                f"parameters came through {len(value.beside)} codecs; expected {len(self.codecs)}, as agreed."
            )
        body = value.body
        for (codec, rows), beside in reversed(list(zip(self._stages(value.layout), value.beside, strict=True))):
            body = codec.decode(body, beside, rows)
        return Params(value.layout, body)


@dataclass(frozen=True)
class Channel:
    """Both ways, and the seed from which codecs draw that round at random."""

    up: CodecChain = CodecChain()
    down: CodecChain = CodecChain()
    seed: Seed = Seed(0)


def check_tensor(tensor: Tensor | None, dtype: torch.dtype, count: int, what: str) -> Tensor:
    """What came over a wire is looked at before it is used."""
    if tensor is None or tensor.dtype != dtype or tensor.shape != (count,):
        came = "nothing" if tensor is None else f"{list(tensor.shape)} of {tensor.dtype}"
        raise WireError(f"{what}: {came} came; expected [{count}] of {dtype}. Sender and reader use different codecs.")
    return tensor


def _mapped(value: Any, change: Any) -> Any:
    """The value with its parameters changed, however deep they stand in it."""
    changed = change(value)
    if changed is not value or isinstance(value, Params):
        return changed
    match value:
        case dict():
            return {k: _mapped(v, change) for k, v in value.items()}
        case list():
            return [_mapped(v, change) for v in value]
        case tuple():
            return tuple(_mapped(v, change) for v in value)
    kind = MESSAGES.get(type(value).__name__)
    if kind is type(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(kind)}
        return kind(**{name: _mapped(v, change) for name, v in fields.items()})
    return value
