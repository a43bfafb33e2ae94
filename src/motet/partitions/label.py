"""Label shift (FedNLP): each client's labels follow a Dirichlet draw around the prior; small α, few labels a client.

    q ~ Dir(α·p),  p the empirical prior;  each client takes q·s examples, s = ⌊n/K⌋

Dynamic reassigning: when a label runs out, the client's room is filled from what the other labels still have, in proportion.
So every example is given to somebody once, and no client is lost. Quotas are rounded by largest remainders; FedNLP's code
rounds each label by itself in turn, which starves the last labels (`rounding="sequential"`, for comparison).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.partitions.partition import Partition, Shares, check_clients

Rounding = Literal["largest_remainder", "sequential"]


def label(
    corpus: Corpus,
    seed: Seed,
    clients: int = 10,
    alpha: float = 1.0,
    rounding: Rounding = "largest_remainder",
    independent_test: bool = False,
) -> Partition:
    """Each client has its own mixture of labels, drawn from a Dirichlet; small alpha, few labels a client."""
    check_clients(clients, corpus.train)
    if not (alpha > 0 and math.isfinite(alpha)):
        raise ConfigError(f"partition.alpha is {alpha}; it must be above 0 (0.1: nearly one label a client, 100: all alike).")
    values, ids = corpus.codes("label")
    if len(values) < 2:
        raise ConfigError(f"partition: column 'label' has one value, '{values[0]}', so labels cannot shift; use uniform.")
    prior = np.bincount(ids[: corpus.train], minlength=len(values)) / corpus.train
    q = mixtures(prior, alpha, clients, seed.of("label", "mixtures").numpy())
    q_test = mixtures(prior, alpha, clients, seed.of("label", "test mixtures").numpy()) if independent_test else q
    train = deal(ids[: corpus.train], q, seed.of("label", "train").numpy(), rounding)
    test = deal(ids[corpus.train :], q_test, seed.of("label", "test").numpy(), rounding)
    made = {
        "type": "label",
        "clients": clients,
        "alpha": alpha,
        "rounding": rounding,
        "independent_test": independent_test,
    }
    return Partition(train, Shares(test.rows + corpus.train, test.offsets), {**made, "seed": seed.root})


def mixtures(prior: np.ndarray, alpha: float, clients: int, rng: np.random.Generator) -> np.ndarray:
    """One draw of label shares a client. Tiny alphas can underflow to NaN; after 100 failed draws, one label by the prior."""
    present = prior > 0
    q = np.zeros((clients, len(prior)))
    for client in range(clients):
        for _ in range(100):
            drawn = rng.dirichlet(alpha * prior[present])
            if np.isfinite(drawn).all() and drawn.sum() > 0:
                break
        else:
            drawn = np.eye(int(present.sum()))[rng.choice(int(present.sum()), p=prior[present])]
        q[client, present] = drawn / drawn.sum()
    return q


def deal(ids: np.ndarray, q: np.ndarray, rng: np.random.Generator, rounding: Rounding) -> Shares:
    """Rows by client, following the mixtures as far as the labels last."""
    clients, labels = q.shape
    piles = [rng.permutation(np.flatnonzero(ids == k)) for k in range(labels)]
    left = np.array([len(p) for p in piles])
    parts: list[np.ndarray] = []
    size = len(ids) // clients
    for client in range(clients):
        last = client == clients - 1
        room = int(left.sum()) if last else size  # the last client takes all that remain
        quota = _largest_remainder(q[client] * room, room) if rounding == "largest_remainder" else None
        taken = _capped(quota, left) if quota is not None else _sequential(q[client], room, left)
        start = [len(p) - n for p, n in zip(piles, left, strict=True)]
        parts.append(np.concatenate([p[s : s + n] for p, s, n in zip(piles, start, taken, strict=True)]))
        left = left - taken
    return Shares.of(parts)


def _largest_remainder(wanted: np.ndarray, room: int) -> np.ndarray:
    whole: np.ndarray = np.floor(wanted).astype(np.int64)
    rest = room - int(whole.sum())
    if rest > 0:
        whole[np.argsort(whole - wanted, kind="stable")[:rest]] += 1
    return whole


def _capped(quota: np.ndarray, left: np.ndarray) -> np.ndarray:
    taken = np.minimum(quota, left)
    filled: np.ndarray = taken + _fill(int(quota.sum() - taken.sum()), left - taken)
    return filled


def _sequential(q: np.ndarray, room: int, left: np.ndarray) -> np.ndarray:
    """As FedNLP's code: label by label, each rounded for itself, the last one taking the room that is left."""
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
    """So many examples from other labels, in proportion to what each still has; the scarcest are asked first."""
    taken = np.zeros_like(left)
    missing = min(missing, int(left.sum()))
    for _ in range(2):  # rounding may leave a rest
        remaining = left - taken
        share = missing - int(taken.sum())
        total = int(remaining.sum())
        for k in np.argsort(remaining, kind="stable"):
            need = missing - int(taken.sum())
            if need <= 0:
                return taken
            taken[k] += min(math.ceil(remaining[k] / total * share), int(remaining[k]), need)
    return taken
