"""Training steps captured as CUDA graphs: for a small model, launching kernels takes longer than running them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

import torch

from motet.core.errors import first_line

_EAGER_RUNS = 3  # before the first capture of a kind; they warm up libraries and the allocator
_EAGER_RUNS_OF_A_SHAPE = 1  # after the first capture of a kind; they compile the kernels of the shape


class CudaGraphs:
    """CUDA graphs by the shapes of a step. All share one memory pool, because only one step runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.eager_runs: dict[Hashable, int] = {}
        self.graphs: dict[Hashable, Any] = {}
        self.num_captures = 0  # so far; dropped graphs count
        self.captured: set[Hashable] = set()
        self.uncapturable: set[Hashable] = set()

    def run(self, key: Hashable, kind: Hashable, step: Callable[[], None]) -> None:
        """Run a step, from its graph if there is one.

        `key` identifies shapes and addresses. `kind` identifies the operations: if capturing fails for a kind, it is
        not tried again.
        """
        if key in self.graphs:
            self.graphs[key].replay()
            return
        self.eager_runs[key] = self.eager_runs.get(key, 0) + 1
        is_warm = self.eager_runs[key] > (_EAGER_RUNS_OF_A_SHAPE if kind in self.captured else _EAGER_RUNS)
        if is_warm and kind not in self.uncapturable and self._capture(key, kind, step):
            self.graphs[key].replay()
        else:
            step()

    def _capture(self, key: Hashable, kind: Hashable, step: Callable[[], None]) -> bool:
        graph, stream_before = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.device)
        # Ask a live graph for the pool: a pool is freed with the last graph in it.
        shared_pool = next((other.pool() for other in self.graphs.values()), None)
        pool: Any = torch.cuda.graph_pool_handle() if shared_pool is None else shared_pool
        try:
            with torch.cuda.graph(graph, pool=pool, stream=self.stream, capture_error_mode="thread_local"):
                step()
        except RuntimeError as error:
            self._recover(stream_before, pool)
            if isinstance(_root_cause(error), torch.OutOfMemoryError):
                raise _root_cause(error) from None
            self.uncapturable.add(kind)  # something in the step waits for the host
            logging.getLogger("motet").warning(
                "steps run without CUDA graphs and take longer (%s)", first_line(_root_cause(error))
            )
            return False
        self.graphs[key] = graph
        self.captured.add(kind)
        self.num_captures += 1
        return True

    def _recover(self, stream_before: Any, pool: Any) -> None:
        """Reset the stream, the allocator and dropout's generator, which a failed capture leaves in capture mode.

        The generator gets a new state that existing graphs do not know, so all graphs are dropped and captured again.
        For the same reason there must be only one `CudaGraphs` per device.
        """
        torch.cuda.set_stream(stream_before)
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        with suppress(RuntimeError):  # raised, before anything is released twice, if torch has already ended it
            torch._C._cuda_endAllocateToPool(index, pool)
            torch._C._cuda_releasePool(index, pool)
        self.drop(lambda _: True)
        generator: Any = torch.cuda.default_generators[index]
        generator.graphsafe_set_state(generator.clone_state())

    def drop(self, is_stale: Callable[[Any], bool]) -> None:
        """Drop the graphs with stale keys."""
        for by_key in (self.graphs, self.eager_runs):
            for key in [key for key in by_key if is_stale(key)]:
                del by_key[key]

    def clear(self) -> None:
        """Drop all graphs and their memory, and forget which kinds cannot be captured."""
        self.drop(lambda _: True)
        self.captured.clear()
        self.uncapturable.clear()


def drops_layers(module: torch.nn.Module) -> bool:
    """True if layers are dropped at random in training. The host draws them, and a graph would always drop the same ones."""
    return any(getattr(submodule, "layerdrop", 0) for submodule in module.modules())


def _root_cause(error: RuntimeError) -> RuntimeError:
    """Return the first error: ending a failed capture raises another one.

    Returned, not stored: a reference cycle between the error and the frame that caught it would keep the autograd graph
    of the step alive.
    """
    cause = error.__context__
    return cause if isinstance(cause, RuntimeError) else error
