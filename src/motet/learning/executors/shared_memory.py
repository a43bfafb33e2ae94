"""Memory that a process shares with the workers it forks: tensors pass between them without being copied through a pipe."""

from __future__ import annotations

import mmap
import os
import weakref
from bisect import insort

import numpy as np
import torch
from torch import Tensor

from motet.wire.format import Buffer, buffer_bytes

_ALIGN = 64


class SharedMemoryPool:
    """One anonymous shared mapping. The parent hands out places in it; pages cost memory only once they are touched."""

    def __init__(self, wanted: int) -> None:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.size = max(2**26, min(wanted, physical // 2))
        self.map = mmap.mmap(-1, self.size)
        self.bytes = np.frombuffer(self.map, np.uint8)
        self.free: list[tuple[int, int]] = [(0, self.size)]  # place and length, in order
        self.taken: dict[int, int] = {}

    def take(self, size: int) -> int | None:
        """The first place with room, or None."""
        size = -(-max(size, 1) // _ALIGN) * _ALIGN
        for i, (place, length) in enumerate(self.free):
            if length >= size:
                self.free[i : i + 1] = [(place + size, length - size)] if length > size else []
                self.taken[place] = size
                return place
        return None

    def give(self, place: int) -> None:
        size = self.taken.pop(place)
        insort(self.free, (place, size))
        merged: list[tuple[int, int]] = []
        for at, length in self.free:
            if merged and sum(merged[-1]) == at:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((at, length))
        self.free = merged

    @property
    def crowded(self) -> bool:
        return sum(self.taken.values()) > self.size // 2

    def write(self, place: int, data: memoryview | bytes) -> None:
        self.bytes[place : place + len(data)] = np.frombuffer(data, np.uint8)

    def put(self, bulk: Buffer) -> int | None:
        data = buffer_bytes(bulk)
        place = self.take(len(data))
        if place is not None:
            self.write(place, data)
        return place

    def tensor(self, place: int, dtype: torch.dtype, shape: tuple[int, ...], size: int) -> Tensor:
        """A window on the arena."""
        return torch.from_numpy(self.bytes[place : place + size]).view(dtype).view(shape)

    def window(self, place: int, size: int) -> memoryview:
        return memoryview(self.map)[place : place + size]

    def lend(self, place: int, span: int) -> np.ndarray:
        """A window that gives its place back when nothing refers to it any more."""
        window = np.frombuffer(self.map, np.uint8, span, place)
        weakref.finalize(window, self.give, place)
        return window
