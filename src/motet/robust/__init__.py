"""Robust aggregation against malicious clients: a table of rules. torch is imported when a rule is created."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any


def _build(name: str, max_norm: float | None, max_weight: float | None, **options: Any) -> Any:
    from motet.core.weighted import TermLimits
    from motet.robust.robust_sum import RobustSum

    limits = TermLimits(
        max_norm=math.inf if max_norm is None else max_norm, max_weight=math.inf if max_weight is None else max_weight
    )
    return RobustSum(name, limits=limits, **options)


def _build_rule(
    name: str,
    max_norm: float | None,
    max_weight: float | None,
    groups: int,
    attackers: float = 0.0,
    clients_per_attacker: int = 2,
) -> Any:
    """Build a rule that needs more than `clients_per_attacker` · f clients if f are malicious."""
    from motet.robust.aggregation_rules import RULES

    options = {"attackers": attackers, "clients_per_attacker": clients_per_attacker, "groups": groups}
    return _build(name, max_norm, max_weight, rule=RULES[name], **options)


def none() -> None:
    """The weighted mean of all replies, without protection."""


def norm_bound(max_norm: float = 1.0, max_weight: float | None = None) -> Any:
    """The weighted mean of updates that are scaled down to `max_norm`, with weights of at most `max_weight`."""
    return _build("norm_bound", max_norm, max_weight)


def median(groups: int = 0, max_norm: float | None = None, max_weight: float | None = None) -> Any:
    """The median of each coordinate (Yin et al. 2018). Needs 2f + 1 clients."""
    return _build_rule("median", max_norm, max_weight, groups)


def trimmed_mean(
    attackers: float = 0.2, groups: int = 0, max_norm: float | None = None, max_weight: float | None = None
) -> Any:
    """The mean of each coordinate without its f largest and smallest values (Yin et al. 2018). Needs 2f + 1 clients."""
    return _build_rule("trimmed_mean", max_norm, max_weight, groups, attackers)


def krum(
    attackers: float = 0.2, groups: int = 0, max_norm: float | None = None, max_weight: float | None = None
) -> Any:
    """The update that is closest to its neighbors (Blanchard et al. 2017). Needs 2f + 3 clients."""
    return _build_rule("krum", max_norm, max_weight, groups, attackers)


def multi_krum(
    attackers: float = 0.2, groups: int = 0, max_norm: float | None = None, max_weight: float | None = None
) -> Any:
    """The mean of the n − f updates that are closest to their neighbors (Blanchard et al. 2017). Needs 2f + 3 clients."""
    return _build_rule("multi_krum", max_norm, max_weight, groups, attackers)


def bulyan(
    attackers: float = 0.1, groups: int = 0, max_norm: float | None = None, max_weight: float | None = None
) -> Any:
    """Krum, then a trimmed mean of what it selects (El Mhamdi et al. 2018). Needs 4f + 3 clients."""
    return _build_rule("bulyan", max_norm, max_weight, groups, attackers, clients_per_attacker=4)


def geometric_median(groups: int = 0, max_norm: float | None = None, max_weight: float | None = None) -> Any:
    """The point with the smallest sum of distances to all updates (Pillutla et al. 2022). Needs 2f + 1 clients."""
    return _build_rule("geometric_median", max_norm, max_weight, groups)


def centered_clipping(
    radius: float | None = None, max_norm: float | None = None, max_weight: float | None = None
) -> Any:
    """The mean of updates, each pulled to within `radius` of the median of all (Karimireddy et al. 2021).

    The default radius is the median distance of the updates from that median.
    """
    from motet.robust.aggregation_rules import centered_clipping as rule

    return _build("centered_clipping", max_norm, max_weight, rule=partial(rule, radius=radius))


def fltrust(max_norm: float | None = None, max_weight: float | None = None) -> Any:
    """Updates weighted by their cosine with the server's update (Cao et al. 2021). Tolerates any number of malicious clients.

    The server trains on texts of its own: `data.public_share` of a simulation, or the rows of a server with data.test.
    """
    return _build("fltrust", max_norm, max_weight, uses_reference=True)


ROBUST: dict[str, Callable[..., Any]] = {
    "none": none,
    "norm_bound": norm_bound,
    "median": median,
    "trimmed_mean": trimmed_mean,
    "krum": krum,
    "multi_krum": multi_krum,
    "bulyan": bulyan,
    "geometric_median": geometric_median,
    "centered_clipping": centered_clipping,
    "fltrust": fltrust,
}
