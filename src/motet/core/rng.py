"""One seed, and an own generator for every purpose, round and client. Nothing here touches global state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Seed:
    """A place in the tree of seeds. Equal paths give equal streams, on one kind of device; others are independent."""

    root: int
    path: tuple[str | int, ...] = ()

    def of(self, *path: str | int) -> Seed:
        return Seed(self.root, self.path + path)

    def number(self) -> int:
        """A 63-bit number that stands for this place."""
        text = json.dumps([self.root, *self.path], ensure_ascii=True).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1

    def numpy(self) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(self.number()))

    def torch(self, device: torch.device | str = "cpu") -> torch.Generator:
        return torch.Generator(device).manual_seed(self.number())


@contextmanager
def seeded_torch(number: int, device: torch.device) -> Iterator[None]:
    """Dropout reads torch's global generators; here they hold `number`, and afterwards what they held before."""
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(number)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(number)
        yield
