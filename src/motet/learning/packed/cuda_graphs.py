"""Steps recorded once and replayed: on a GPU a small model's step costs more to launch than to compute."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

import torch

from motet.core.errors import first_line

_EAGER = (
    3  # a shape that comes up this often is recorded; until then its steps are ordinary ones, and warm everything up
)


class CudaGraphs:
    """CUDA graphs by the shapes of a step. All share one pool of memory, since only one step runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.seen: dict[Hashable, int] = {}
        self.graphs: dict[Hashable, Any] = {}
        self.spoilt: set[Hashable] = set()

    def play(self, key: Hashable, kind: Hashable, step: Callable[[], None]) -> None:
        """Do a step. `kind` is what makes recording possible or not; a kind that failed once is not tried again."""
        if key in self.graphs:
            self.graphs[key].replay()
            return
        self.seen[key] = self.seen.get(key, 0) + 1
        if self.seen[key] <= _EAGER or kind in self.spoilt or not self._record(key, kind, step):
            step()
        else:
            self.graphs[key].replay()

    def _record(self, key: Hashable, kind: Hashable, step: Callable[[], None]) -> bool:
        graph, before = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.device)
        shared = next(
            (known.pool() for known in self.graphs.values()), None
        )  # a pool goes with the last recording in it
        pool: Any = torch.cuda.graph_pool_handle() if shared is None else shared
        try:
            with torch.cuda.graph(graph, pool=pool, stream=self.stream, capture_error_mode="thread_local"):
                step()
        except RuntimeError as error:
            self._recover(before, pool)
            if isinstance(_cause(error), torch.OutOfMemoryError):
                raise _cause(error) from None
            self.spoilt.add(kind)  # something in this model's step waits for the host
            logging.getLogger("motet").warning(
                "steps are not recorded, and take longer (%s)", first_line(_cause(error))
            )
            return False
        self.graphs[key] = graph
        return True

    def _recover(self, before: Any, pool: Any) -> None:
        """A recording that fails leaves its stream, the allocator, and the generator that dropout reads, in the midst of it.

        The generator is given a state of its own, which recordings know nothing of: those of this tape are made again, and
        there must be no other tape on the device.
        """
        torch.cuda.set_stream(before)
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        with suppress(RuntimeError):  # where torch has ended it after all, it says so before anything is released twice
            torch._C._cuda_endAllocateToPool(index, pool)
            torch._C._cuda_releasePool(index, pool)
        self.drop(lambda _: True)
        generator: Any = torch.cuda.default_generators[index]
        generator.graphsafe_set_state(generator.clone_state())

    def drop(self, stale: Callable[[Any], bool]) -> None:
        """Let go of the recordings with such keys."""
        for known in (self.graphs, self.seen):
            for key in [key for key in known if stale(key)]:
                del known[key]

    def forget(self) -> None:
        """Let go of all recordings and of their memory, and of what is known of packs that may be gone."""
        self.drop(lambda _: True)
        self.spoilt.clear()


def _cause(error: RuntimeError) -> RuntimeError:
    """Ending a recording that failed fails too. Not to be kept in the frame that caught the error: the error refers to that
    frame, and the circle would keep the step's gradients' graph, which knows how many clients there were, from going."""
    first = error.__context__
    return first if isinstance(first, RuntimeError) else error
