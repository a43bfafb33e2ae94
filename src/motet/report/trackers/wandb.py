"""Weights & Biases tracker. Offline, set WANDB_MODE=offline and upload later with `wandb sync`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.core.errors import ConfigError
from motet.core.install_hint import install_command
from motet.report.trackers import Tracker


@dataclass(frozen=True)
class WandbTracker:
    run: Any

    def log(self, round: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=round)

    def close(self) -> None:
        self.run.finish()


def open_tracker(name: str, folder: Path, settings: Mapping[str, Any]) -> Tracker:
    """Log to Weights & Biases."""
    try:
        import wandb
    except ImportError:
        raise ConfigError(
            f"track: wandb is not installed. Run: {install_command('track', 'wandb')}, or remove wandb from track."
        ) from None
    # The id is the folder's name, so that a resumed run continues the same curves.
    run = wandb.init(
        project="motet",
        name=f"{name} {folder.name}",
        id=folder.name,
        resume="allow",
        dir=str(folder),
        config=dict(settings),
    )
    return WandbTracker(run)
