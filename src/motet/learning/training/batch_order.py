"""The order of a training's examples; with buckets, texts of like length stand in one batch, so that little of it is padding.

    shuffle the examples, cut them into windows of so many batches, sort each window by length, cut it into batches, shuffle
    the batches

Clients that train side by side are padded to the longest text of all their batches, so their long batches should meet. Every
step has a random number that all clients of a round share; in each epoch the step with the k-th smallest number gets the batch
of the k-th shortest texts. For each client by itself that is a batch order drawn uniformly at random.
"""

from __future__ import annotations

import numpy as np

from motet.core.rng import Seed
from motet.learning.jobs import Fit
from motet.learning.solver import Solver


def batches_for_job(job: Fit) -> list[np.ndarray]:
    """The places of the examples of each step."""
    rng = Seed(job.seed).derive("order").numpy()
    if not job.solver.bucket:
        return job.solver.draw_batches(len(job.examples), rng)
    common = Seed(job.seed if job.shuffle_seed is None else job.shuffle_seed).derive("pace").numpy()
    return bucket_batches(job.solver, job.examples.lengths, rng, common)


def bucket_batches(
    solver: Solver, lengths: np.ndarray, rng: np.random.Generator, common: np.random.Generator
) -> list[np.ndarray]:
    steps, batches = solver.num_steps(len(lengths)), list[np.ndarray]()
    epoch_steps = -(-len(lengths) // solver.batch)
    tempo = common.random(steps + epoch_steps)  # by step, not by epoch: clients begin their epochs at different steps
    while len(batches) < steps:
        epoch = _epoch(solver, lengths, rng)
        by_length = np.argsort([int(lengths[batch].max()) for batch in epoch], kind="stable")
        ranks = np.argsort(np.argsort(tempo[len(batches) : len(batches) + len(epoch)]))
        batches += [epoch[by_length[rank]] for rank in ranks]
    return batches[:steps]


def _epoch(solver: Solver, lengths: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Every example once. The short batch may be any of its window's: were it always the last, long texts would count more."""
    row = rng.permutation(len(lengths))
    window, batches = solver.bucket * solver.batch, list[np.ndarray]()
    for at in range(0, len(row), window):
        part = row[at : at + window]
        part = part[np.argsort(lengths[part], kind="stable")]
        whole, rest = divmod(len(part), solver.batch)
        sizes = [solver.batch] * whole
        if rest:
            sizes.insert(int(rng.integers(whole + 1)), rest)
        batches += np.split(part, np.cumsum(sizes)[:-1])
    return batches
