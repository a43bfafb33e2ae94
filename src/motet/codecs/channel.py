"""Chains of codecs, applied to the parameters inside a message, up and down."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from motet.core.messages import MESSAGES, message
from motet.core.params import Layout, Params


@message
@dataclass(frozen=True, eq=False)
class Coded:
    """Parameters on their way: the layout they had, and what the codecs made of them."""

    layout: Layout
    body: Any


class Codec(Protocol):
    """`encode` on the sender's side, `decode` on the reader's. Additive: decoding a sum gives the sum, within `error`."""

    @property
    def name(self) -> str: ...
    @property
    def additive(self) -> bool: ...
    def encode(self, body: Any) -> Any: ...
    def decode(self, body: Any) -> Any: ...


@dataclass(frozen=True)
class Chain:
    """Codecs in order: forwards where a message is sent, backwards where it is read. They see nothing but parameters."""

    codecs: tuple[Codec, ...] = ()

    def encode(self, value: Any) -> Any:
        return _mapped(value, self._encoded) if self.codecs else value

    def decode(self, value: Any) -> Any:
        return _mapped(value, self._decoded) if self.codecs else value

    def _encoded(self, value: Any) -> Any:
        if not isinstance(value, Params) or value.flat.dtype != torch.float32:  # counts are in double precision: left alone
            return value
        body: Any = value.flat
        for codec in self.codecs:
            body = codec.encode(body)
        return Coded(value.layout, body)

    def _decoded(self, value: Any) -> Any:
        if not isinstance(value, Coded):
            return value
        body = value.body
        for codec in reversed(self.codecs):
            body = codec.decode(body)
        return Params(value.layout, body)


@dataclass(frozen=True)
class Channel:
    up: Chain = Chain()
    down: Chain = Chain()


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
