"""The messages of a secure sum, and its topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from motet.core.messages import message
from motet.core.params import Layout
from motet.core.script import ClientId
from motet.secure.crypto import Ciphertext
from motet.secure.participants import PublicKeys
from motet.wire.value_digest import digest_value


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
    """Return what a sum is about: the method, and a hash of its payload.

    Clients sign the topic, and it is part of the key derivation, so all of them must have the same. Without the payload
    in it, a server could send one client another model than all others and see the effect in the sum, or send all
    clients but one a number that makes their replies count for nothing.
    """
    return f"{address}?{digest_value(payload)}"


def topic_address(topic: str) -> str:
    return topic.partition("?")[0]
