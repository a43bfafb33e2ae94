"""TensorBoard tracker. Writes events to the folder of the run (tensorboard --logdir runs)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError
from motet.core.install_hint import install_command
from motet.report.trackers import Tracker


@dataclass(frozen=True)
class TensorBoardTracker:
    writer: Any

    def log(self, round: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, round)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


def open_tracker(name: str, folder: Path, settings: Mapping[str, Any]) -> Tracker:
    """Log to TensorBoard, in the folder of the run."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(
            f"track: tensorboard is not installed. Run: {install_command('track', 'tensorboard')}, "
            "or remove tensorboard from track."
        ) from None
    writer = SummaryWriter(str(folder / "tensorboard"))
    writer.add_text(name, "\n".join(f"    {section}: {value}" for section, value in settings.items()))
    return TensorBoardTracker(writer)
