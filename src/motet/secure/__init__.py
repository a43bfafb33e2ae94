"""Sums of which only the sum can be read: a table of protocols, each made from its options.

What a protocol needs (numpy, cryptography) is loaded when it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from motet.codecs.chain import CodecChain

OutOfRange = Literal["refuse", "clip"]


def none() -> None:
    """Sums are read by the server as they come."""


def secagg(
    threshold: float = 2 / 3,
    minimum: int = 3,
    range: float = 4.0,
    bits: int | None = None,
    largest_weight: float = 1024.0,
    outside: OutOfRange = "refuse",
    identities: str | None = None,
    seeded: bool = False,
    codecs: CodecChain = CodecChain(),
) -> Any:
    """Masks that every two clients agree on cancel in the sum (Bonawitz et al. 2017)."""
    from motet.secure.mask_graph import CompleteGraph
    from motet.secure.pairwise_masking import PairwiseMasking

    masking = PairwiseMasking(threshold, CompleteGraph())
    return _sum(masking, minimum, range, bits, largest_weight, outside, identities, seeded, codecs)


def secagg_plus(
    threshold: float = 0.5,
    neighbours: int | None = None,
    dropouts: float = 0.3,
    minimum: int = 3,
    range: float = 4.0,
    bits: int | None = None,
    largest_weight: float = 1024.0,
    outside: OutOfRange = "refuse",
    identities: str | None = None,
    seeded: bool = False,
    codecs: CodecChain = CodecChain(),
) -> Any:
    """The same among neighbours on a ring only, for large cohorts (Bell et al. 2020)."""
    from motet.secure.mask_graph import RingGraph
    from motet.secure.pairwise_masking import PairwiseMasking

    masking = PairwiseMasking(threshold, RingGraph(neighbours, dropouts, threshold))
    return _sum(masking, minimum, range, bits, largest_weight, outside, identities, seeded, codecs)


def light_secagg(
    privacy: float = 0.5,
    threshold: float = 0.7,
    minimum: int = 3,
    range: float = 4.0,
    bits: int | None = None,
    largest_weight: float = 1024.0,
    outside: OutOfRange = "refuse",
    identities: str | None = None,
    seeded: bool = False,
    codecs: CodecChain = CodecChain(),
) -> Any:
    """Coded masks whose sum is recovered in one step, however many clients are lost (So et al. 2022)."""
    from motet.secure.coded_masking import CodedMasking

    return _sum(
        CodedMasking(privacy, threshold), minimum, range, bits, largest_weight, outside, identities, seeded, codecs
    )


def _sum(
    masking: Any,
    minimum: int,
    range: float,
    bits: int | None,
    largest_weight: float,
    outside: OutOfRange,
    identities: str | None,
    seeded: bool,
    codecs: CodecChain,
) -> Any:
    from motet.codecs.fixed_point import FixedPoint
    from motet.secure.client_session import ClientPolicy
    from motet.secure.identities import Identities
    from motet.secure.protocol import SecureSum

    numbers = FixedPoint(range, bits, outside)
    return SecureSum(masking, numbers, largest_weight, ClientPolicy(minimum), Identities(identities), seeded, codecs)


SECURE: dict[str, Callable[..., Any]] = {
    "none": none,
    "secagg": secagg,
    "secagg_plus": secagg_plus,
    "light_secagg": light_secagg,
}
