"""Offload large parameters that the server keeps between rounds, such as personal models, to host memory or disk."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from motet.core.params import Params
from motet.transport.private_files import create_private_folder

MIN_OFFLOADED_BYTES = 32 * 2**20


@dataclass(frozen=True)
class ParamOffload:
    """Moves parameters of up to `host_limit` bytes to host memory, and larger ones to files in `folder`."""

    folder: Path | None = None
    host_limit: int = 0
    min_bytes: int = MIN_OFFLOADED_BYTES  # smaller parameters stay where they are

    def offload(self, params: Params) -> Params:
        """Return the same values, in host memory or memory-mapped from a file.

        The file is deleted at once; the system keeps its contents until the last reference to the tensor is gone.
        """
        size = params.flat.numel() * params.flat.element_size()
        if size < self.min_bytes:
            return params
        if size <= self.host_limit:
            return Params(params.layout, params.flat.cpu())
        if self.folder is not None:
            create_private_folder(self.folder)
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix="model-", delete=False) as file:
            file.truncate(size)
        path = Path(file.name)
        flat = torch.from_file(str(path), shared=True, size=params.flat.numel(), dtype=params.flat.dtype)
        flat.copy_(params.flat)
        with suppress(OSError):  # some systems cannot delete an open file; it stays in the run's folder
            path.unlink()
        return Params(params.layout, flat)
