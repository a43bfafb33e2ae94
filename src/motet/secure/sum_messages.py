"""The messages of a secure sum, and its topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from motet.core.messages import message
from motet.core.params import Layout
from motet.core.script import ClientId, Exchange
from motet.secure.crypto import Ciphertext
from motet.secure.participants import PublicKeys


@message
@dataclass(frozen=True, eq=False)
class ShareRequest:
    """The keys of all clients, and the payload of the work if the work comes before the shares."""

    public_keys: dict[ClientId, PublicKeys]
    payload: Any = None


@message
@dataclass(frozen=True, eq=False)
class UploadRequest:
    """Encrypted shares by sender, and the payload of the work if it has not been done yet."""

    shares: dict[ClientId, Ciphertext]
    payload: Any = None


@message
@dataclass(frozen=True, eq=False)
class MaskedVector:
    """A masked vector: 32-bit words that look random, and the layout of its numbers."""

    layout: Layout
    is_double: bool
    words: torch.Tensor


@message
@dataclass(frozen=True, eq=False)
class MaskedTotal:
    """The sum of the masked vectors of some clients."""

    clients: tuple[ClientId, ...]
    layout: Layout
    is_double: bool
    words: torch.Tensor


def make_topic(address: str, payload: Any) -> str:
    """Return what a sum is about: the work and, if its payload is a plain number, that number.

    The topic is part of the key derivation, so all clients must have the same. Without the number in it, a server could
    send all clients but one a number that makes their replies count for nothing.
    """
    return f"{address}?{payload.hex()}" if isinstance(payload, float) else address


def exchange_topic(exchange: Exchange) -> str:
    return make_topic(exchange.address, next(iter(exchange.payloads.values()), None))


def topic_address(topic: str) -> str:
    return topic.partition("?")[0]
