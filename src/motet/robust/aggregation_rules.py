"""Robust means: rules that combine the updates of all clients, some of whom may lie.

Each rule takes a matrix with one row per client and returns one row. `attackers` is the largest number of clients that may
lie. A rule that selects clients also returns the rows that it used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 2**20  # coordinates at a time, so that temporaries stay small
MAX_ITERATIONS, TOLERANCE = 50, 1e-6  # of the geometric median; the tolerance is relative to the median distance
CLIPPING_ITERATIONS = 3


class RuleResult(NamedTuple):
    """The combined row, and the rows that it was made of; None if all rows had a part in it."""

    row: Tensor
    used: tuple[int, ...] | None = None


def median(rows: Tensor, _: int = 0) -> RuleResult:
    """The median of each coordinate (Yin et al. 2018). For an even count, the mean of the two in the middle."""
    return RuleResult(_by_blocks(rows, _median))


def trimmed_mean(rows: Tensor, attackers: int) -> RuleResult:
    """The mean of each coordinate without its `attackers` largest and smallest values (Yin et al. 2018)."""
    count = len(rows)
    return RuleResult(_by_blocks(rows, lambda block: block.sort(0).values[attackers : count - attackers].mean(0)))


def krum(rows: Tensor, attackers: int) -> RuleResult:
    """The row that is closest to its n − attackers − 2 nearest neighbors (Blanchard et al. 2017)."""
    return _mean_of_central_rows(rows, attackers, count=1)


def multi_krum(rows: Tensor, attackers: int) -> RuleResult:
    """The mean of the n − attackers rows that are closest to their nearest neighbors (Blanchard et al. 2017)."""
    return _mean_of_central_rows(rows, attackers, count=len(rows) - attackers)


def _mean_of_central_rows(rows: Tensor, attackers: int, count: int) -> RuleResult:
    scores = _krum_scores(_squared_distances(rows), attackers)
    used = tuple(sorted(scores.argsort(stable=True)[:count].tolist()))
    return RuleResult(rows[list(used)].mean(0), used)


def bulyan(rows: Tensor, attackers: int) -> RuleResult:
    """Select n − 2·attackers rows by Krum, then average the values next to the median (El Mhamdi et al. 2018)."""
    distances, left = _squared_distances(rows), list(range(len(rows)))
    selected: list[int] = []
    while len(selected) < len(rows) - 2 * attackers:
        index = int(_krum_scores(distances[left][:, left], attackers).argmin())
        selected.append(left.pop(index))
    near = len(selected) - 2 * attackers
    used = tuple(sorted(selected))

    def average_near_median(block: Tensor) -> Tensor:
        order = (block - _median(block)).abs().argsort(dim=0, stable=True)[:near]
        return block.gather(0, order).mean(0)

    return RuleResult(_by_blocks(rows[list(used)], average_near_median), used)


def geometric_median(rows: Tensor, _: int = 0) -> RuleResult:
    """The point with the smallest sum of distances to all rows, by Weiszfeld's algorithm (Pillutla et al. 2022)."""
    point = _by_blocks(rows, _median)
    for _step in range(MAX_ITERATIONS):
        distances = _distances_to(rows, point)
        weights = 1 / distances.clamp_min(1e-10)
        weights /= weights.sum()
        new_point = (weights.to(rows.dtype)[:, None] * rows).sum(0)
        moved = float((new_point - point).norm())
        point = new_point
        if moved <= TOLERANCE * float(distances.median()):
            break
    return RuleResult(point)


def centered_clipping(rows: Tensor, _: int = 0, radius: float | None = None) -> RuleResult:
    """The mean of all rows, each pulled to within `radius` of the last estimate (Karimireddy et al. 2021).

    It starts at the coordinate-wise median. The default radius is the median distance of the rows from it.
    """
    point = _by_blocks(rows, _median)
    for _step in range(CLIPPING_ITERATIONS):
        distances = _distances_to(rows, point)
        limit = float(distances.median()) if radius is None else radius
        factors = (limit / distances.clamp_min(1e-30)).clamp(max=1).to(rows.dtype)
        point = point + (factors[:, None] * (rows - point)).mean(0)
    return RuleResult(point)


def fltrust(rows: Tensor, reference: Tensor) -> RuleResult:
    """The mean of all rows at the length of `reference`, weighted by their cosine with it (Cao et al. 2021).

    Rows that point away from the reference have no weight. If all do, the result is zero.
    """
    lengths = _distances_to(rows, torch.zeros_like(reference)).clamp_min(1e-30)
    length = float(reference.double().norm())
    products = sum((rows[:, part].double() @ reference[part].double()) for part in _blocks(rows.shape[1]))
    trust = (torch.as_tensor(products) / (lengths * max(length, 1e-30))).clamp_min(0)
    used = tuple(torch.nonzero(trust).flatten().tolist())
    factors = trust * length / (lengths * trust.sum().clamp_min(1e-30))
    return RuleResult((factors.to(rows.dtype)[:, None] * rows).sum(0), used)


RULES: dict[str, Callable[[Tensor, int], RuleResult]] = {
    "median": median,
    "trimmed_mean": trimmed_mean,
    "krum": krum,
    "multi_krum": multi_krum,
    "bulyan": bulyan,
    "geometric_median": geometric_median,
    "centered_clipping": centered_clipping,
}


def _median(block: Tensor) -> Tensor:
    ordered, count = block.sort(0).values, len(block)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def _by_blocks(rows: Tensor, combine: Callable[[Tensor], Tensor]) -> Tensor:
    result = torch.empty_like(rows[0])
    for part in _blocks(rows.shape[1]):
        result[part] = combine(rows[:, part])
    return result


def _blocks(size: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, size, BLOCK))


def _squared_distances(rows: Tensor) -> Tensor:
    """Return all pairwise squared distances, in double precision."""
    result = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for part in _blocks(rows.shape[1]):
        block = rows[:, part].double()
        for index in range(len(rows)):
            result[index] += (block - block[index]).square().sum(1)
    return result


def _distances_to(rows: Tensor, point: Tensor) -> Tensor:
    squares = sum((rows[:, part] - point[part]).double().square().sum(1) for part in _blocks(rows.shape[1]))
    return torch.as_tensor(squares, dtype=torch.float64).sqrt()


def _krum_scores(distances: Tensor, attackers: int) -> Tensor:
    """Return each row's sum of squared distances to its nearest neighbors; its distance to itself is 0."""
    neighbors = max(1, len(distances) - attackers - 2)
    return distances.sort(1).values[:, : neighbors + 1].sum(1)
