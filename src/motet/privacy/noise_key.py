"""The secret key of the noise. The noise of a release is a function of the key and of the numbers that it hides.

So a request that is repeated after a crash gets the same noise, and reveals nothing new. Other numbers get independent noise.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import torch

KEY_BYTES = 32
FILE_NAME = "noise_key"


def load_noise_key(folder: Path) -> bytes:
    """Return the key of a run, and create it the first time. Only the owner can read the file."""
    path = folder / FILE_NAME
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        temporary = folder / f".{FILE_NAME}.{os.getpid()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)  # fails if another process was faster
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
    return path.read_bytes()


def derive_noise(key: bytes, purpose: int, numbers: torch.Tensor) -> np.random.Generator:
    """Return the generator of the noise for these numbers."""
    digest = hashlib.blake2b(key=key, digest_size=16)
    digest.update(purpose.to_bytes(8, "little"))
    digest.update(digest_numbers(numbers))
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest.digest(), "little")))


def digest_numbers(numbers: torch.Tensor) -> bytes:
    flat = numbers.detach().cpu().contiguous().view(torch.uint8).numpy()
    return hashlib.blake2b(flat.data, digest_size=32).digest()
