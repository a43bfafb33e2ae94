"""How much memory this process may still take, on a GPU and beside it; several runs may stand side by side on one."""

from __future__ import annotations

from pathlib import Path

import torch

PACKED_MODEL_FRACTION = 0.65  # of what is free on a GPU: clients that train side by side
CLIENT_STATE_FRACTION = 1 / 8  # of it: what clients remember, and as much again of what a round under way has changed
_SHARES: dict[str, float] = {}  # by kind of device


def limit_device_memory(device: torch.device, share: float) -> None:
    """Of the device's memory this process takes at most so much: those beside it count on the rest."""
    _SHARES[device.type] = share
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.set_per_process_memory_fraction(share, index)


def free_memory(device: torch.device) -> int:
    """Bytes of the device's memory that this process could still fill; on CPU those of the machine."""
    if device.type != "cuda":
        return int(_beside() * _SHARES.get(device.type, 1.0))
    free, whole = torch.cuda.mem_get_info(device)
    reserved, used = torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device)
    ours = int(whole * _SHARES.get(device.type, 1.0)) - reserved
    return max(0, min(free, ours)) + reserved - used


def _beside() -> int:
    """Bytes that could be had without anything being pushed out; where nobody tells, those of a small machine."""
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 8 * 2**30
