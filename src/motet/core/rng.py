"""Independent random generators derived from one seed. Global random state is never touched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # commands that draw no numbers start without it
    import torch


@dataclass(frozen=True)
class Seed:
    """A node in a tree of seeds.

    Equal paths give equal random numbers on the same kind of device. Different paths give independent ones.
    """

    root: int
    path: tuple[str | int, ...] = ()

    def derive(self, *path: str | int) -> Seed:
        """Return the seed at `path` below this one, e.g. `seed.derive("round", 3)`."""
        return Seed(self.root, self.path + path)

    def to_int(self) -> int:
        """Return a 63-bit hash of the root and the path."""
        text = json.dumps([self.root, *self.path], ensure_ascii=True).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1

    def numpy(self) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(self.to_int()))

    def torch(self, device: torch.device | str = "cpu") -> torch.Generator:
        import torch

        return torch.Generator(device).manual_seed(self.to_int())


@contextmanager
def seeded_torch(number: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators, which dropout reads, and restore their state on exit."""
    import torch

    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(number)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(number)
        yield
