"""Secure sums: the server learns only the sum of the clients' replies. A table of protocols.

numpy and cryptography are imported when a protocol is created.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal

from motet.codecs.chain import CodecChain

OutOfRange = Literal["refuse", "clip"]


def _build_secure_sum(
    masking: Any,
    min_clients: int = 3,
    range: float = 4.0,
    bits: int | None = None,
    max_weight: float = 1024.0,
    out_of_range: OutOfRange = "refuse",
    identities: str | None = None,
    seeded: bool = False,
    codecs: CodecChain = CodecChain(),
) -> Any:
    from motet.codecs.fixed_point import FixedPoint
    from motet.secure.client_policy import ClientPolicy
    from motet.secure.identities import Identities
    from motet.secure.protocol import SecureSum
    from motet.secure.sum_encoding import SumEncoding

    fixed_point = FixedPoint(max_abs=range, bits=bits, out_of_range=out_of_range)
    return SecureSum(
        masking,
        encoding=SumEncoding(fixed_point, max_weight=max_weight, codecs=codecs),
        policy=ClientPolicy(min_clients=min_clients),
        identities=Identities(identities),
        seeded=seeded,
    )


def _secure_sum(make_masking: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a function that creates a masking scheme into one that creates a secure sum.

    The new function takes the options of `make_masking` and the common options of `_build_secure_sum`, by keyword. Its
    signature lists them all, because recipes are checked against it.
    """
    own = inspect.signature(make_masking).parameters
    _, *common = inspect.signature(_build_secure_sum).parameters.values()

    @functools.wraps(make_masking)
    def build(**options: Any) -> Any:
        own_options = {name: options.pop(name) for name in own if name in options}
        return _build_secure_sum(make_masking(**own_options), **options)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own.values(), *common)]
    build.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    build.__annotations__ = {p.name: p.annotation for p in parameters}
    return build


def none() -> None:
    """The server reads every reply."""


@_secure_sum
def secagg(threshold: float = 2 / 3) -> Any:
    """Pairwise masks of the clients cancel in the sum (Bonawitz et al. 2017)."""
    from motet.secure.mask_graph import CompleteGraph
    from motet.secure.secagg_masking import SecAggMasking

    return SecAggMasking(threshold, CompleteGraph())


@_secure_sum
def secagg_plus(threshold: float = 0.5, neighbors: int | None = None, dropouts: float = 0.3) -> Any:
    """Like secagg, but each client shares masks only with its neighbors on a ring; for large cohorts (Bell et al. 2020)."""
    from motet.secure.mask_graph import RingGraph
    from motet.secure.secagg_masking import SecAggMasking

    return SecAggMasking(threshold, RingGraph(neighbors, dropouts, threshold))


@_secure_sum
def light_secagg(colluders: float = 0.5, threshold: float = 0.7) -> Any:
    """Coded masks; their sum is recovered in one step, however many clients drop out (So et al. 2022)."""
    from motet.secure.light_secagg_masking import LightSecAggMasking

    return LightSecAggMasking(colluder_share=colluders, threshold=threshold)


SECURE: dict[str, Callable[..., Any]] = {
    "none": none,
    "secagg": secagg,
    "secagg_plus": secagg_plus,
    "light_secagg": light_secagg,
}
