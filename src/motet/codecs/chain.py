"""Chains of codecs. They are applied to the parameters inside a message, at any depth."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from motet.codecs.row_layout import RowLayout
from motet.core.attributes import attribute, undeclared
from motet.core.errors import ConfigError, WireError
from motet.core.messages import MESSAGES, SUBSTITUTES, message
from motet.core.params import Layout, Params, common_params
from motet.core.rng import Seed

SHRINKAGE = 1 - 1e-4  # a vector that a codec lengthens is scaled down a little more than necessary


@message
@dataclass(frozen=True, eq=False)
class EncodedParams:
    """Encoded parameters: their original layout, the encoded numbers, and the side information of each codec."""

    layout: Layout
    body: Tensor
    side_info: tuple[Tensor | None, ...]


SUBSTITUTES[EncodedParams] = Params


class EncodedSize(NamedTuple):
    """Bytes of the encoded numbers, and of the side information (scales, indices)."""

    body: int
    side_info: int


class Codec(Protocol):
    """Encodes a float32 vector at the sender and decodes it at the receiver. Every codec inherits from this class."""

    @attribute
    def name(self) -> str:
        """The codec's name in recipes and errors."""
        raise undeclared(self, "name", 'name: str = "mine"')

    @attribute
    def is_additive(self) -> bool:
        """True if decoding a sum of encoded vectors gives the sum of the vectors."""
        return False

    @attribute
    def must_be_last(self) -> bool:
        """True if the output is no longer float32, so that no other codec can follow."""
        return False

    @attribute
    def updates_only(self) -> bool:
        """True if the codec discards so much that it is only suitable for updates, not for weights."""
        return False

    @attribute
    def feedback(self) -> bool:
        """True if a client adds what was lost of one reply to its next reply (error feedback)."""
        return False

    @abstractmethod
    def encode(self, body: Tensor, rows: RowLayout, seed: Seed) -> tuple[Tensor, Tensor | None]:
        """Return the encoded vector and its side information."""

    @abstractmethod
    def decode(self, body: Tensor, side_info: Tensor | None, rows: RowLayout) -> Tensor: ...

    def output_rows(self, rows: RowLayout) -> RowLayout:
        """Return the row layout of the encoded vector."""
        return rows

    @abstractmethod
    def encoded_size(self, rows: RowLayout) -> EncodedSize: ...
    @abstractmethod
    def error_bound(self, body: Tensor, rows: RowLayout) -> float:
        """Return an upper bound of the L2 distance between a vector and its decoded version."""


@dataclass(frozen=True)
class CodecChain:
    """Codecs in the order in which the sender applies them. Everything but float32 parameters passes unchanged."""

    codecs: tuple[Codec, ...] = ()

    def __post_init__(self) -> None:
        if misplaced := [codec.name for codec in self.codecs[:-1] if codec.must_be_last]:
            raise ConfigError(
                f"codec: {misplaced[0]} must be the last of its chain; the next codec needs float32 numbers."
            )

    @property
    def updates_only_codecs(self) -> tuple[str, ...]:
        return tuple(codec.name for codec in self.codecs if codec.updates_only)

    @property
    def has_error_feedback(self) -> bool:
        """True if the residual of a reply is added to the next reply."""
        return any(codec.feedback for codec in self.codecs)

    def encode(self, value: Any, seed: Seed = Seed(0), max_norm: float = math.inf) -> Any:
        """Encode all parameters. The receiver decodes none with an L2 norm above `max_norm`, if the input has none."""
        return self._encode_all(value, (), seed, max_norm, with_residuals=False)[0] if self.codecs else value

    def decode(self, value: Any) -> Any:
        return map_leaves(value, self._decode_params)  # also without codecs, to reject encoded parameters

    def encode_with_feedback(
        self, value: Any, residuals: tuple[Params, ...], seed: Seed, max_norm: float = math.inf
    ) -> tuple[Any, tuple[Params, ...]]:
        """Add the previous residuals, then encode. Return the encoded value and the new residuals (error feedback)."""
        return self._encode_all(value, residuals, seed, max_norm, with_residuals=True)

    def encoded_size(self, layout: Layout) -> int:
        """Return the bytes of the encoded tensors for parameters of this layout."""
        body, side_info = 4 * layout.size, 0
        for codec, rows in self._stages(layout):
            body, added = codec.encoded_size(rows)
            side_info += added
        return body + side_info

    def error_bound(self, params: Params, seed: Seed = Seed(0)) -> float:
        """Return an upper bound of the L2 distance between `params` and what the receiver decodes."""
        body, bound = params.flat, 0.0
        for number, (codec, rows) in enumerate(self._stages(params.layout)):
            bound += codec.error_bound(body, rows)
            body, _ = codec.encode(body, rows, seed.derive(0, number))
        return bound

    def _encode_all(
        self, value: Any, residuals: tuple[Params, ...], seed: Seed, max_norm: float, with_residuals: bool
    ) -> tuple[Any, tuple[Params, ...]]:
        old_residuals, new_residuals = iter(residuals), list[Params]()
        seeds = (seed.derive(number) for number in range(2**31))

        def encode_leaf(leaf: Any) -> Any:
            if not isinstance(leaf, Params) or leaf.flat.dtype != torch.float32 or not leaf.layout.size:
                return leaf  # counts are float64 and stay exact
            params = _add_residual(leaf, next(old_residuals, None))
            encoded = self._encode_within(params, next(seeds), max_norm)
            if with_residuals:
                new_residuals.append(params - self._decode_params(encoded))
            return encoded

        return map_leaves(value, encode_leaf), tuple(new_residuals)

    def _stages(self, layout: Layout) -> Iterator[tuple[Codec, RowLayout]]:
        rows = RowLayout.from_layout(layout)
        for codec in self.codecs:
            yield codec, rows
            rows = codec.output_rows(rows)

    def _encode_within(self, params: Params, seed: Seed, max_norm: float) -> EncodedParams:
        """Encode, and scale the input down if the receiver would decode more than `max_norm`.

        A residual is added after the clipping, and rounding may lengthen a vector.
        """
        encoded, factor = self._encode_params(params, seed), 1.0
        while max_norm < math.inf and (norm := vector_norm(self._decode_params(encoded).flat)) > max_norm:
            factor *= max_norm / norm * SHRINKAGE
            encoded = self._encode_params(params * factor, seed)
        return encoded

    def _encode_params(self, params: Params, seed: Seed) -> EncodedParams:
        body, side_info = params.flat, list[Tensor | None]()
        for number, (codec, rows) in enumerate(self._stages(params.layout)):
            body, added = codec.encode(body, rows, seed.derive(number))
            side_info.append(added)
        return EncodedParams(params.layout, body, tuple(side_info))

    def _decode_params(self, value: Any) -> Any:
        if not isinstance(value, EncodedParams):
            return value
        if len(value.side_info) != len(self.codecs):
            raise WireError(
                f"the parameters were encoded by {len(value.side_info)} codecs; expected {len(self.codecs)}. "
                "Use the same codec setting on both sides."
            )
        body, stages = value.body, list(self._stages(value.layout))
        for (codec, rows), side_info in zip(reversed(stages), reversed(value.side_info), strict=True):
            body = codec.decode(body, side_info, rows)
        return Params(value.layout, body)


@dataclass(frozen=True)
class Channel:
    """The codecs for both directions, and the seed of their random rounding."""

    up: CodecChain = CodecChain()
    down: CodecChain = CodecChain()
    seed: Seed = Seed(0)


def _add_residual(params: Params, residual: Params | None) -> Params:
    """Add what was lost of the previous reply. If that had other layers, only the common ones are added."""
    if residual is None:
        return params
    if residual.layout == params.layout:
        return params + residual
    common = common_params([residual, params])
    return params.updated(params.restrict(common.layout) + common)


def vector_norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64))


def check_tensor(tensor: Tensor | None, dtype: torch.dtype, count: int, name: str) -> Tensor:
    """Return a received tensor if it is a vector of `count` numbers of this type; else raise an error."""
    if tensor is None or tensor.dtype != dtype or tensor.shape != (count,):
        received = "nothing" if tensor is None else f"shape {list(tensor.shape)} of {tensor.dtype}"
        raise WireError(
            f"{name}: received {received}; expected shape [{count}] of {dtype}. Use the same codec setting on both sides."
        )
    return tensor


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to the leaves of a nested value. Parameters, encoded or not, are leaves."""
    changed = change(value)
    if changed is not value or isinstance(value, Params):
        return changed
    match value:
        case dict():
            return {key: map_leaves(item, change) for key, item in value.items()}
        case list():
            return [map_leaves(item, change) for item in value]
        case tuple():
            return tuple(map_leaves(item, change) for item in value)
    message_class = MESSAGES.get(type(value).__name__)
    if message_class is type(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(message_class)}
        return message_class(**{name: map_leaves(item, change) for name, item in fields.items()})
    return value
