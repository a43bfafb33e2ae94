"""Large values that a server keeps from round to round: beside the device they were made on, or on disk."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from motet.core.params import Params

SMALL = 32 * 2**20  # bytes; what is smaller stays where it is


@dataclass(frozen=True)
class ParamOffload:
    """Where personal models lie. A file has no name once it is mapped, so it goes when the last who looks at it does."""

    folder: Path | None = None
    room: int = 0  # bytes of the host's memory for each
    small: int = SMALL

    def put(self, params: Params) -> Params:
        """The same value; if it is large, in the host's memory, or as a window on a file that the system reads in when it is
        looked at."""
        size = params.flat.numel() * params.flat.element_size()
        if size < self.small:
            return params
        if size <= self.room:
            return Params(params.layout, params.flat.cpu())
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix="model-", delete=False) as file:
            file.truncate(params.flat.numel() * params.flat.element_size())
        path = Path(file.name)
        flat = torch.from_file(str(path), shared=True, size=params.flat.numel(), dtype=params.flat.dtype)
        flat.copy_(params.flat)
        with suppress(OSError):  # a system that cannot take the name of an open file away leaves it in the run's folder
            path.unlink()
        return Params(params.layout, flat)
