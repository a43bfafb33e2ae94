"""Options of the transport `in_process`."""

from __future__ import annotations

from dataclasses import dataclass

from motet.core.errors import ConfigError
from motet.transport.fault_injection import Faults


@dataclass(frozen=True)
class InProcessOptions:
    """Options of `transport.type=in_process`."""

    workers: int | None = None  # worker processes on a CPU; None: one per core, 0: none
    width: int | None = None  # clients trained side by side on a GPU; None: as many as memory allows
    cuda_graphs: bool = True  # capture training steps on a GPU as CUDA graphs and replay them
    faults: Faults = Faults()  # messages to lose, repeat, reorder or delay

    def __post_init__(self) -> None:
        if self.width is not None and self.width < 1:
            raise ConfigError(f"transport.width is {self.width}; expected a number of clients, at least 1.")
        if self.workers is not None and self.workers < 0:
            raise ConfigError(f"transport.workers is {self.workers}; expected a number of processes, or 0 for none.")
