"""The order of a job's examples. With bucketing, a batch holds texts of similar length, so that little of it is padding.

    shuffle the examples, split them into windows of several batches, sort each window by length, split it into batches,
    shuffle the batches

Packed clients are padded to the longest text in any of their batches, so their batches of long texts should coincide.
Every step has a random number that all clients of a round share. In each epoch, the step with the k-th smallest number
gets the batch with the k-th shortest texts. For each client by itself, that is a uniformly random order of batches.
"""

from __future__ import annotations

import numpy as np

from motet.core.rng import Seed
from motet.learning.jobs import Fit
from motet.learning.solver import Solver


def batches_for_job(job: Fit) -> list[np.ndarray]:
    """Return the example indices of each step."""
    rng = Seed(job.seed).derive("order").numpy()
    if not job.solver.bucket:
        return job.solver.draw_batches(len(job.examples), rng)
    shared_rng = Seed(job.seed if job.shuffle_seed is None else job.shuffle_seed).derive("pace").numpy()
    return bucket_batches(job.solver, job.examples.lengths, rng, shared_rng)


def bucket_batches(
    solver: Solver, lengths: np.ndarray, rng: np.random.Generator, shared_rng: np.random.Generator
) -> list[np.ndarray]:
    steps, batches = solver.num_steps(len(lengths)), list[np.ndarray]()
    epoch_steps = -(-len(lengths) // solver.batch)
    # One number per step, not per epoch: the clients' epochs start at different steps.
    step_numbers = shared_rng.random(steps + epoch_steps)
    while len(batches) < steps:
        epoch = _bucket_epoch(solver, lengths, rng)
        by_length = np.argsort([int(lengths[batch].max()) for batch in epoch], kind="stable")
        ranks = np.argsort(np.argsort(step_numbers[len(batches) : len(batches) + len(epoch)]))
        batches += [epoch[by_length[rank]] for rank in ranks]
    return batches[:steps]


def _bucket_epoch(solver: Solver, lengths: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Return batches that contain every example once.

    The short batch may be any batch of its window. If it were always the last one, long texts would have more weight.
    """
    order = rng.permutation(len(lengths))
    window_size, batches = solver.bucket * solver.batch, list[np.ndarray]()
    for start in range(0, len(order), window_size):
        window = order[start : start + window_size]
        window = window[np.argsort(lengths[window], kind="stable")]
        full_batches, rest = divmod(len(window), solver.batch)
        sizes = [solver.batch] * full_batches
        if rest:
            sizes.insert(int(rng.integers(full_batches + 1)), rest)
        batches += np.split(window, np.cumsum(sizes)[:-1])
    return batches
