"""Memory that a process shares with the workers it forks, so that tensors are not copied through a pipe."""

from __future__ import annotations

import mmap
import weakref
from bisect import insort

import numpy as np
import psutil
import torch
from torch import Tensor

from motet.wire.format import Buffer, buffer_bytes

_ALIGNMENT = 64


class SharedMemoryPool:
    """One anonymous shared mapping. The parent allocates blocks in it; pages use memory only once they are written."""

    def __init__(self, size: int) -> None:
        self.size: int = max(2**26, min(size, psutil.virtual_memory().total // 2))
        self.map = mmap.mmap(-1, self.size)
        self.bytes = np.frombuffer(self.map, np.uint8)
        self.free_blocks: list[tuple[int, int]] = [(0, self.size)]  # (address, size), sorted
        self.allocated: dict[int, int] = {}  # address -> size

    def allocate(self, size: int) -> int | None:
        """Return the address of the first free block of this size, or None."""
        size = -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT
        for i, (address, available) in enumerate(self.free_blocks):
            if available >= size:
                self.free_blocks[i : i + 1] = [(address + size, available - size)] if available > size else []
                self.allocated[address] = size
                return address
        return None

    def free(self, address: int) -> None:
        size = self.allocated.pop(address)
        insort(self.free_blocks, (address, size))
        merged: list[tuple[int, int]] = []
        for start, length in self.free_blocks:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self.free_blocks = merged

    @property
    def is_half_full(self) -> bool:
        return sum(self.allocated.values()) > self.size // 2

    def write(self, address: int, data: memoryview | bytes) -> None:
        self.bytes[address : address + len(data)] = np.frombuffer(data, np.uint8)

    def store(self, buffer: Buffer) -> int | None:
        """Copy a tensor or array into the pool, and return its address, or None if the pool is full."""
        data = buffer_bytes(buffer)
        address = self.allocate(len(data))
        if address is not None:
            self.write(address, data)
        return address

    def tensor(self, address: int, dtype: torch.dtype, shape: tuple[int, ...], size: int) -> Tensor:
        """Return a tensor that is a view of the pool."""
        return torch.from_numpy(self.bytes[address : address + size]).view(dtype).view(shape)

    def view(self, address: int, size: int) -> memoryview:
        return memoryview(self.map)[address : address + size]

    def view_until_unused(self, address: int, size: int) -> np.ndarray:
        """Return a view that frees its block when nothing refers to it anymore."""
        view = np.frombuffer(self.map, np.uint8, size, address)
        weakref.finalize(view, self.free, address)
        return view
