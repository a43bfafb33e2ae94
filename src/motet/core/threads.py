"""Limits on the threads of numeric libraries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext


@contextmanager
def single_thread(blas: bool = False) -> Iterator[None]:
    """Run torch on one thread inside the block; with `blas`, also the BLAS and OpenMP pools of numpy and scikit-learn.

    Sums over several threads differ in their last bits, so results would depend on the number of cores. Threads that
    wait for each other also make small products a hundred times slower on a busy machine.
    """
    import torch

    if blas:
        from threadpoolctl import threadpool_limits

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1) if blas else nullcontext():
            yield
    finally:
        torch.set_num_threads(threads)
