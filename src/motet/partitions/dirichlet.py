"""The draw behind every shift: each client's mixture of kinds from a Dirichlet, and rows dealt to match it (FedNLP).

    q ~ Dir(α·p),  p the empirical prior;  each client takes q·s examples, s = ⌊n/K⌋ or a size of its own

Dynamic reassigning: when a kind runs out, the client's room is filled from what the other kinds still have, in proportion.
So every example is given to somebody once, and no client is lost. Quotas are rounded by largest remainders; FedNLP's code
rounds each kind by itself in turn, which starves the last ones (`rounding="sequential"`, for comparison).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import ClientRows
from motet.partitions.traits import Trait

Rounding = Literal["largest_remainder", "sequential"]
SizesFor = Callable[[int], np.ndarray]  # from a number of examples to each client's
ALPHA_HINT = "0.1: nearly one kind a client, 100: all alike"


def dirichlet_split(
    corpus: Corpus,
    seed: Seed,
    trait: Trait,
    clients: int,
    alpha: float,
    rounding: Rounding = "largest_remainder",
    independent_test: bool = False,
    sizes: SizesFor | None = None,
) -> tuple[ClientRows, ClientRows]:
    """Train and test rows by client. The test rows follow the same draw, unless they are to have one of their own."""
    train, test = trait.codes[: corpus.num_train], trait.codes[corpus.num_train :]
    prior = np.bincount(train, minlength=len(trait.names)) / corpus.num_train
    q = sample_mixtures(prior, alpha, clients, seed.derive("mixtures").numpy())
    q_test = sample_mixtures(prior, alpha, clients, seed.derive("test mixtures").numpy()) if independent_test else q
    wanted = sizes or (lambda rows: equal_sizes(rows, clients))
    mine = assign_rows(train, q, seed.derive("train").numpy(), rounding, wanted(len(train)))
    theirs = assign_rows(test, q_test, seed.derive("test").numpy(), rounding, wanted(len(test)))
    return mine, ClientRows(theirs.rows + corpus.num_train, theirs.offsets)


def equal_sizes(rows: int, clients: int) -> np.ndarray:
    """⌊n/K⌋ each; the last client has what remains, as in FedNLP."""
    sizes = np.full(clients, rows // clients)
    sizes[-1] += rows - int(sizes.sum())
    return sizes


def sample_mixtures(prior: np.ndarray, alpha: float, clients: int, rng: np.random.Generator) -> np.ndarray:
    """A client's shares of the kinds, a row a client.

    Tiny alphas can underflow to NaN: such a draw is made anew, and after 100 failures it is one kind, by the prior.
    """
    present = np.flatnonzero(prior > 0)
    q = np.zeros((clients, len(prior)))
    drawn = rng.dirichlet(alpha * prior[present], size=clients)
    for _ in range(100):
        failed = np.flatnonzero(~np.isfinite(drawn).all(1) | (drawn.sum(1) <= 0))
        if not len(failed):
            break
        drawn[failed] = rng.dirichlet(alpha * prior[present], size=len(failed))
    else:
        chosen = rng.choice(len(present), size=len(failed), p=prior[present] / prior[present].sum())
        drawn[failed] = np.eye(len(present))[chosen]
    q[:, present] = drawn / drawn.sum(1, keepdims=True)
    return q


def assign_rows(
    ids: np.ndarray, q: np.ndarray, rng: np.random.Generator, rounding: Rounding, sizes: np.ndarray | None = None
) -> ClientRows:
    """Rows by client, following the mixtures as far as the kinds last."""
    clients, kinds = q.shape
    sizes = equal_sizes(len(ids), clients) if sizes is None else sizes
    piles = [rng.permutation(rows) for rows in _rows_of(ids, kinds)]
    left = np.array([len(p) for p in piles])
    taken = np.zeros((clients, kinds), np.int64)
    for client in range(clients):
        room = int(sizes[client])
        if rounding == "largest_remainder":
            taken[client] = _capped(largest_remainder(q[client] * room, room), left)
        else:
            taken[client] = _sequential(q[client], room, left)
        left -= taken[client]
    return take_from_pools(piles, taken)


def take_from_pools(piles: list[np.ndarray], taken: np.ndarray) -> ClientRows:
    """So many of each pile to each client, from the top: one sort, instead of a slice for each client and pile."""
    clients = len(taken)
    used = [pile[: int(n)] for pile, n in zip(piles, taken.sum(0), strict=True)]
    rows = np.concatenate(used) if used else np.zeros(0, np.int64)
    owner = np.repeat(np.tile(np.arange(clients), len(piles)), taken.T.ravel())
    return ClientRows.from_sizes(rows[np.argsort(owner, kind="stable")], taken.sum(1))


def largest_remainder(wanted: np.ndarray, room: int) -> np.ndarray:
    """Whole numbers near those wanted that sum to the room."""
    whole: np.ndarray = np.floor(wanted).astype(np.int64)
    rest = room - int(whole.sum())
    if rest > 0:
        whole[np.argsort(whole - wanted, kind="stable")[:rest]] += 1
    return whole


def _rows_of(ids: np.ndarray, kinds: int) -> list[np.ndarray]:
    order = np.argsort(ids, kind="stable")
    return np.split(order, np.cumsum(np.bincount(ids, minlength=kinds))[:-1])


def _capped(quota: np.ndarray, left: np.ndarray) -> np.ndarray:
    taken = np.minimum(quota, left)
    missing = int(quota.sum() - taken.sum())
    filled: np.ndarray = taken + _fill(missing, left - taken) if missing else taken
    return filled


def _sequential(q: np.ndarray, room: int, left: np.ndarray) -> np.ndarray:
    """As FedNLP's code: kind by kind, each rounded for itself, the last one taking the room that is left."""
    taken = np.zeros_like(left)
    for k in range(len(q)):
        space = room - int(taken.sum())
        want = space if k == len(q) - 1 else min(round(q[k] * room), space)
        here = min(want, int(left[k] - taken[k]))
        taken[k] += here
        if want > here:
            others = left - taken
            others[k] = 0
            taken = taken + _fill(want - here, others)
    return taken


def _fill(missing: int, left: np.ndarray) -> np.ndarray:
    """So many examples of other kinds, in proportion to what each still has; the scarcest are asked first."""
    taken = np.zeros_like(left)
    need = min(missing, int(left.sum()))
    for _ in range(2):  # rounding may leave a rest
        remaining = left - taken
        share, total = need, int(remaining.sum())
        for k in np.argsort(remaining, kind="stable")[int((remaining == 0).sum()) :]:
            if need <= 0:
                return taken
            here = int(remaining[k])
            some = min(math.ceil(here / total * share), here, need)
            taken[k] += some
            need -= some
    return taken
