"""Copies between the host and a device for which the host does not wait."""

from __future__ import annotations

import torch
from torch import Tensor


def upload(source: Tensor, device: torch.device) -> Tensor:
    return _pinned(source, device).to(device, non_blocking=True)


def write_from_host(target: Tensor, source: Tensor) -> None:
    """Copy to a tensor on a device. Its type is that of the copy already on the host: a conversion is not pinned."""
    target.copy_(_pinned(source.to(target.dtype), target.device), non_blocking=True)


def _pinned(source: Tensor, device: torch.device) -> Tensor:
    """Return a copy in memory that the device reads itself. torch reuses that memory only after it was read."""
    return source.pin_memory() if device.type == "cuda" else source


class HostCopy:
    """A copy of a tensor in the host's memory. The host waits for it, and not for what the device does afterwards."""

    def __init__(self, source: Tensor) -> None:
        self.event: torch.cuda.Event | None = None
        if source.device.type != "cuda":
            self.tensor = source.cpu()
            return
        self.tensor = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
        self.tensor.copy_(source, non_blocking=True)
        self.event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.event.record(torch.cuda.current_stream(source.device))

    def wait(self) -> Tensor:
        if self.event is not None:
            self.event.synchronize()
        return self.tensor
