"""How much memory this process may still use, on a GPU and in the machine. Several runs may share both."""

from __future__ import annotations

import psutil
import torch

from motet.core.errors import RunError

PACKED_MODEL_FRACTION = 0.65  # of the free GPU memory, for packed models
CLIENT_STATE_FRACTION = 1 / 8  # of it, for client state, and as much again for changes in the current round
RESULTS_FRACTION = 1 / 8  # of the memory that this process may use, for what clients compute with results of jobs
_FRACTIONS: dict[str, float] = {}  # by device type


class DeviceMemoryError(RunError):
    """One client or one text does not fit into the memory that this process may use."""


def clients_per_packed_model(bytes_per_client: float, free: int, limit: int) -> int:
    """Return how many clients fit into one packed model, at least 1 and at most `limit`."""
    return max(1, min(limit, int(PACKED_MODEL_FRACTION * free / max(bytes_per_client, 1))))


def limit_device_memory(device: torch.device, fraction: float) -> None:
    """Let this process use at most this fraction of the device's memory; other processes rely on the rest."""
    _FRACTIONS[device.type] = fraction
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.set_per_process_memory_fraction(fraction, index)


def free_memory(device: torch.device) -> int:
    """Return the bytes that this process can still allocate on the device; for the CPU, in the machine's memory."""
    fraction = _FRACTIONS.get(device.type, 1.0)
    if device.type != "cuda":
        return int(psutil.virtual_memory().available * fraction)
    free, total = torch.cuda.mem_get_info(device)
    reserved, allocated = torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device)
    within_limit = int(total * fraction) - reserved
    return max(0, min(free, within_limit)) + reserved - allocated - _unused_in_private_pools(device)


def _unused_in_private_pools(device: torch.device) -> int:
    """Return the bytes that only captured steps can use. torch counts them as reserved, and not as allocated."""
    index = torch.cuda.current_device() if device.index is None else device.index
    segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    private = [s for s in segments if s["device"] == index and tuple(s["segment_pool_id"]) != (0, 0)]
    return sum(segment["total_size"] - segment["allocated_size"] for segment in private)


def is_memory_short(device: torch.device) -> bool:
    """Return whether a GPU has too little memory left for the results of jobs and what clients compute with them."""
    if device.type != "cuda":
        return False
    usable = torch.cuda.mem_get_info(device)[1] * _FRACTIONS.get(device.type, 1.0)
    return free_memory(device) < RESULTS_FRACTION * usable
